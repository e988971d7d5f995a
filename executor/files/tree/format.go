// Package tree is the stream format of a dray.Tree. [Send] writes one. [Reader] reads one that an
// untrusted process wrote: it accepts only what was requested, validates every name, order, size
// and count, and keeps only the names in memory.
//
// A stream is the four bytes "drt1" and then records, each a letter and its fields. Numbers are
// uvarints of encoding/binary; a text is its length and its bytes.
//
//	D name mode                         a directory, before its content
//	F name mode version size offset     a file, followed by
//	  C length bytes                    a piece of it, with the length in four bytes, little-endian, and
//	  E                                 its end, after exactly size - offset bytes
//	R name code message                 a refused entry
//	Z entries bytes                     the end: the number of D, F and R, and of bytes of files
//	X code message                      the sender aborts the tree; allowed in place of any record
//
// There are no symlinks, devices, owners, times and holes.
//
// The agent links this package.
package tree

import (
	"bufio"
	"io"
	"strings"

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
	// MaxName and MaxElement are the maximum lengths of a name and of a component of it. Longer names
	// could be created, but not opened by name.
	MaxName    = 4095
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
		dray.CodePathInvalid, dray.CodeDenied, dray.CodeNotFound, dray.CodeLimitExceeded,
	}
	abortCodes = []dray.Code{dray.CodeTransferFailed, dray.CodeLimitExceeded, dray.CodePathInvalid}
)

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
		return "copy fewer files at once, or raise the limit in the configuration (sandbox.max_file, " +
			"max_total, max_files, max_depth)"
	default:
		return "repeat the call; if it fails again, check which program changes the files, and the " +
			"container's memory"
	}
}

// LimitError returns a limit_exceeded error with its hint.
func LimitError(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("%s", Hint(dray.CodeLimitExceeded))
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

// maxNames is the maximum number of names in a request. It comes from the daemon, so the limit
// guards against errors, not attacks.
const maxNames = 1 << 20

// WriteRequest writes a request: the names, the limits, and the files of which the caller has a
// part.
func WriteRequest(w io.Writer, what dray.ReadTreeOptions) error {
	s := &sender{w: w}
	s.number(uint64(len(what.Names)))
	for _, name := range what.Names {
		s.text(name)
	}
	l := what.Limits
	for _, n := range [...]int64{l.MaxFile, l.MaxTotal, int64(l.MaxFiles), int64(l.MaxDepth)} {
		s.number(uint64(max(n, 0)))
	}
	s.number(uint64(len(what.Partial)))
	for name, partial := range what.Partial {
		s.text(name)
		s.text(partial.Version)
		s.number(uint64(max(partial.Bytes, 0)))
	}
	s.flush()
	return s.err
}

// ReadRequest reads what WriteRequest wrote.
func ReadRequest(r *bufio.Reader) (dray.ReadTreeOptions, error) {
	in := fieldReader{in: r}
	var what dray.ReadTreeOptions
	for range in.number(maxNames, "number of names") {
		what.Names = append(what.Names, in.text(MaxName, "name"))
	}
	limits := &what.Limits
	limits.MaxFile, limits.MaxTotal = in.size(), in.size()
	limits.MaxFiles, limits.MaxDepth = int(in.size()), int(in.size())
	what.Partial = map[string]dray.PartialFile{}
	for range in.number(maxNames, "number of files") {
		name := in.text(MaxName, "name")
		what.Partial[name] = dray.PartialFile{Version: in.text(maxVersion, "version"), Bytes: in.size()}
	}
	return what, in.err
}
