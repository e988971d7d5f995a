package tree

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/dray-dev/dray"
)

const magic = "drt1"

// The first byte of each record.
const (
	recordDir     = 'D'
	recordFile    = 'F'
	recordPiece   = 'C'
	recordEnd     = 'E'
	recordRefused = 'R'
	recordDone    = 'Z'
	recordAbort   = 'X'
)

// Limits of a stream, in bytes. Names have the limits of the kernel.
const (
	// MaxPiece is the maximum length of a piece of a file.
	MaxPiece = 256 << 10
	// MaxName and MaxElement are the maximum lengths of a name and of a component of it.
	MaxName    = 4096
	MaxElement = 255
	maxVersion = 128
	maxMessage = 1 << 10
)

// The types of entries.
const (
	typeFile = "file"
	typeDir  = "directory"
)

// entryCodes are the codes of refused entries, abortCodes those of aborted trees. A record has the
// index of a code.
var (
	entryCodes = []dray.Code{
		dray.CodePathInvalid, dray.CodeDenied, dray.CodeNotFound,
		dray.CodeLimitExceeded,
	}
	abortCodes = []dray.Code{dray.CodeTransferFailed, dray.CodeLimitExceeded, dray.CodePathInvalid}
)

// codeIndex returns the index of a code, 0 for one that is not in the list.
func codeIndex(list []dray.Code, code dray.Code) uint64 {
	return uint64(max(slices.Index(list, code), 0))
}

// Hint returns the hint for an error with that code.
func Hint(code dray.Code) string {
	switch code {
	case dray.CodePathInvalid:
		return "name regular files and directories; symlinks, devices, FIFOs and sockets are never copied"
	case dray.CodeDenied:
		return "make it readable for the user that tools run as"
	case dray.CodeNotFound:
		return "check whether the tool has written it, and where"
	case dray.CodeLimitExceeded:
		return "copy fewer files at once, or raise the limit in the configuration (sandbox.max_file, max_total, max_files, max_depth)"
	default:
		return "repeat the call; if it fails again, check which program changes the files, and the container's memory"
	}
}

// recordReader reads the fields of records and limits their length.
type recordReader struct{ *bufio.Reader }

func (in recordReader) magic() error {
	var got [len(magic)]byte
	if _, err := io.ReadFull(in, got[:]); err != nil {
		return err
	}
	if string(got[:]) != magic {
		return protocolError("it starts with %q", got)
	}
	return nil
}

func (in recordReader) number(limit uint64, what string) (uint64, error) {
	n, err := binary.ReadUvarint(in)
	if err == nil && n > limit {
		return 0, protocolError("the %s is %d (maximum %d)", what, n, limit)
	}
	return n, err
}

func (in recordReader) size() (int64, error) {
	n, err := in.number(math.MaxInt64, "size")
	return int64(n), err //nolint:gosec // at most MaxInt64
}

func (in recordReader) text(limit uint64, what string) (string, error) {
	n, err := in.number(limit, "length of the "+what)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return string(b), err
}

// length reads the length of a piece.
func (in recordReader) length() (int64, error) {
	var b [4]byte
	_, err := io.ReadFull(in, b[:])
	return int64(binary.LittleEndian.Uint32(b[:])), err
}

// maxEmptyReads is the number of empty reads after which a source fails with io.ErrNoProgress.
const maxEmptyReads = 100

// readSome reads at least one byte.
func (in recordReader) readSome(p []byte) (int, error) {
	for range maxEmptyReads {
		if n, err := in.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// readError reads a code and a message. The message is printable text; the hint is our own.
func (in recordReader) readError(list []dray.Code) (*dray.Error, error) {
	n, err := in.number(uint64(len(list)-1), "code") //nolint:gosec // not empty
	if err != nil {
		return nil, err
	}
	message, err := in.text(maxMessage, "message")
	if err != nil {
		return nil, err
	}
	code := list[n]
	return dray.Errorf(code, "%s", sanitize(message)).WithHint("%s", Hint(code)), nil
}

// sanitize replaces characters that are not printable.
func sanitize(message string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, message)
}

// CheckName fails with path_invalid for a name that no entry can have: one that is absolute, empty,
// not clean, contains "." or ".." as a component or NUL, or is longer than MaxName or has a
// component longer than MaxElement. All other bytes are allowed.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid(name, "it is empty")
	case len(name) > MaxName:
		return invalid(name, "it is too long")
	case strings.IndexByte(name, 0) >= 0:
		return invalid(name, "it contains NUL")
	}
	for component := range strings.SplitSeq(name, "/") {
		switch {
		case component == "" || component == "." || component == "..":
			return invalid(name, "it is not a clean path beneath the root")
		case len(component) > MaxElement:
			return invalid(name, "a component of it is too long")
		}
	}
	return nil
}

func invalid(name, why string) *dray.Error {
	return dray.Errorf(dray.CodePathInvalid, "invalid name %.200q: %s", name, why).
		WithHint("use names relative to the root, with single slashes, without . and ..")
}

// Sources returns the names of a request in their order, without duplicates and names beneath
// another one. "." is everything beneath the root, and then the only name. It fails with
// path_invalid.
func Sources(names []string) ([]string, error) {
	requested := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "." {
			return []string{"."}, nil
		}
		if err := CheckName(name); err != nil {
			return nil, err
		}
		requested[name] = true
	}
	sources := make([]string, 0, len(requested))
	for _, name := range names {
		if requested[name] && !beneath(name, requested) {
			sources = append(sources, name)
			requested[name] = false // for the next time
		}
	}
	return sources, nil
}

// beneath reports whether a directory above a name was requested.
func beneath(name string, requested map[string]bool) bool {
	for above, ok := parent(name); ok; above, ok = parent(above) {
		if _, ok := requested[above]; ok {
			return true
		}
	}
	return false
}

// parent returns the directory of a name, and false for a name directly beneath the root.
func parent(name string) (string, bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", false
	}
	return name[:i], true
}
