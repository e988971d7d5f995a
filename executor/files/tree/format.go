package tree

import (
	"slices"

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

// refusals are the codes that an entry may be refused with, breaks those that a tree may break off with. A code travels as its place in
// the list.
var (
	entryCodes = []dray.Code{dray.CodePathInvalid, dray.CodeDenied, dray.CodeNotFound, dray.CodeLimitExceeded}
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
