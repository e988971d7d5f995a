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

// The letters of the records.
const (
	recordFolder  = 'D'
	recordFile    = 'F'
	recordPiece   = 'C'
	recordEnd     = 'E'
	recordRefused = 'R'
	recordDone    = 'Z'
	recordAbort   = 'X'
)

// Bounds of what a stream may say, in bytes. Names are as long as the kernel takes them.
const (
	// MaxPiece is the longest piece of a file.
	MaxPiece = 256 << 10
	// MaxName and MaxElement bound a name and what lies between two slashes of it.
	MaxName    = 4096
	MaxElement = 255
	maxVersion = 128
	maxMessage = 1 << 10
)

// The types of entries.
const (
	typeFile   = "file"
	typeFolder = "directory"
)

// refusals are the codes that an entry may be refused with, breaks those that a tree may break off
// with. A code travels as its place in the list.
var (
	entryCodes = []dray.Code{
		dray.CodePathInvalid, dray.CodeDenied, dray.CodeNotFound,
		dray.CodeLimitExceeded,
	}
	abortCodes = []dray.Code{dray.CodeTransferFailed, dray.CodeLimitExceeded, dray.CodePathInvalid}
)

// codeIndex gives the number of a code; one that is not in the list is told as the first.
func codeIndex(list []dray.Code, code dray.Code) uint64 {
	return uint64(max(slices.Index(list, code), 0))
}

// Hint says what to do about a code.
func Hint(code dray.Code) string {
	switch code {
	case dray.CodePathInvalid:
		return "name regular files and folders; links, devices, FIFOs and sockets are never taken"
	case dray.CodeDenied:
		return "give the user that tools run as the right to read it"
	case dray.CodeNotFound:
		return "look whether the tool has written it, and where"
	case dray.CodeLimitExceeded:
		return "take less at once, or raise the limit in the configuration (sandbox.max_file, max_total, max_files, max_depth)"
	default:
		return "repeat it; if it happens again, look at what changes the files meanwhile, and at the container's memory"
	}
}

// recordReader reads the fields of records, none longer than it may be. An end of file within a
// field is no end.
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

// readError reads a code of a list and what was said about it. It is the sender's own, so that it
// is no more than text.
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

// CheckName refuses a name that no entry can have: absolute, empty, not clean, with "." or ".." in
// it, with NUL, longer than MaxName or with an element longer than MaxElement. Any other bytes are
// a name. The error is path_invalid.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid(name, "it is empty")
	case len(name) > MaxName:
		return invalid(name, "it is longer than the kernel takes")
	case strings.IndexByte(name, 0) >= 0:
		return invalid(name, "it has a NUL")
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == "." || element == "..":
			return invalid(name, "it is not a clean path below the root")
		case len(element) > MaxElement:
			return invalid(name, "a part of it is longer than the kernel takes")
		}
	}
	return nil
}

func invalid(name, why string) *dray.Error {
	return dray.Errorf(dray.CodePathInvalid, "%.200q is no name of a file to take: %s", name, why).
		WithHint("give names relative to the root, with single slashes, without . and ..")
}

// Sources gives the names that a Collection asks for, in their order, without those that lie
// beneath another or stand twice. "." asks for all that lies beneath the root, and is the only one
// then. The error is path_invalid.
func Sources(names []string) ([]string, error) {
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "." {
			return []string{"."}, nil
		}
		if err := CheckName(name); err != nil {
			return nil, err
		}
		asked[name] = true
	}
	sources := make([]string, 0, len(asked))
	for _, name := range names {
		if asked[name] && !beneath(name, asked) {
			sources = append(sources, name)
			asked[name] = false // the next time it stands there
		}
	}
	return sources, nil
}

// beneath says whether a folder above a name was asked for.
func beneath(name string, asked map[string]bool) bool {
	for above, ok := parent(name); ok; above, ok = parent(above) {
		if _, there := asked[above]; there {
			return true
		}
	}
	return false
}

// parent gives the folder that a name lies in; a name without a slash lies in the root.
func parent(name string) (string, bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", false
	}
	return name[:i], true
}
