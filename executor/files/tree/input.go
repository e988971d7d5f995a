package tree

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"unicode"

	"github.com/dray-dev/dray"
)

// recordReader reads the fields of records, none longer than it may be. An end of file within a field is no end.
type recordReader struct{ *bufio.Reader }

func (in recordReader) magic() error {
	var got [len(magic)]byte
	if _, err := io.ReadFull(in, got[:]); err != nil {
		return err
	}
	if string(got[:]) != magic {
		return protocolError("it begins with %q", got)
	}
	return nil
}

func (in recordReader) number(limit uint64, what string) (uint64, error) {
	n, err := binary.ReadUvarint(in)
	if err == nil && n > limit {
		return 0, protocolError("it has a %s of %d, at most %d is allowed", what, n, limit)
	}
	return n, err
}

func (in recordReader) size() (int64, error) {
	n, err := in.number(math.MaxInt64, "size")
	return int64(n), err //nolint:gosec // at most MaxInt64
}

func (in recordReader) text(limit uint64, what string) (string, error) {
	n, err := in.number(limit, "length of a "+what)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return string(b), err
}

// length is that of a piece.
func (in recordReader) length() (int64, error) {
	var b [4]byte
	_, err := io.ReadFull(in, b[:])
	return int64(binary.LittleEndian.Uint32(b[:])), err
}

// maxEmptyReads is how often a source may give nothing before it counts as one that never will.
const maxEmptyReads = 100

// readSome reads at least a byte.
func (in recordReader) readSome(p []byte) (int, error) {
	for range maxEmptyReads {
		if n, err := in.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// readError reads a code of a list and what was said about it. It is the sender's own, so that it is no more than text.
func (in recordReader) readError(list []dray.Code) (*dray.Error, error) {
	n, err := in.number(uint64(len(list)-1), "code") //nolint:gosec // not empty
	if err != nil {
		return nil, err
	}
	said, err := in.text(maxMessage, "message")
	if err != nil {
		return nil, err
	}
	code := list[n]
	return dray.Errorf(code, "%s", sanitize(said)).WithHint("%s", Hint(code)), nil
}

// sanitize keeps what can be printed.
func sanitize(said string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, said)
}
