package dray

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Tree is a set of files and folders on its way from one place to another: what Files.ReadTree
// gives and Files.WriteTree takes. Entries come one after the other, a folder before what it holds.
// A Tree that comes out of a container was checked by our own reader: names, order, sizes and
// counts are within the limits that were asked for, or Next and Read fail with a code.
//
// A Tree is used by one goroutine.
type Tree interface {
	// Next goes to the next entry and passes over what is left of the current file. It returns io.EOF
	// after the last one; any other error ends the tree: transfer_failed for a stream that breaks off
	// or lies, limit_exceeded, agent_lost.
	Next() (TreeEntry, error)
	// Reader reads the current file from TreeEntry.Offset on; it ends with io.EOF exactly at
	// TreeEntry.Size.
	io.Reader
	io.Closer
}

// TreeEntry is one file or folder of a tree, or the reason why it is not one.
type TreeEntry struct {
	// Name is slash-separated and relative to the root of the Files that it comes from: clean, without
	// "..", without NUL, else any bytes.
	Name string
	// Type is "file" or "directory".
	Type string
	// Size is the whole length of a file, in bytes; From is where its bytes begin in this tree, beyond
	// zero only for one that is resumed.
	Size, Offset int64
	// Mode is the permission bits.
	Mode fs.FileMode
	// Version changes when the file's content may have changed. It is opaque, and compared with
	// nothing but another of the same file.
	Version string
	// Refused says why this entry is not taken: path_invalid for a link, a device, a FIFO, a socket
	// and a file with a name elsewhere, denied, not_found for one that vanished, limit_exceeded. It
	// has a name then, and nothing to read.
	Refused *Error
}

// TreeLimits bound a tree. Zero is no limit.
type TreeLimits struct {
	// MaxFile and MaxTotal are bytes, MaxFiles counts files and folders, MaxDepth the folders that an
	// entry lies in below its source.
	MaxFile, MaxTotal  int64
	MaxFiles, MaxDepth int
}

// ReadTreeOptions asks for a tree.
type ReadTreeOptions struct {
	// Names are the files and folders to collect, each relative to the root; folders come with all
	// that they hold.
	Names  []string
	Limits TreeLimits
	// Partial are files that the caller has already, in part or whole, from a tree that broke off: one
	// that still has that version comes from its byte Bytes on.
	Partial map[string]PartialFile
}

// PartialFile is a beginning of a file.
type PartialFile struct {
	Version string
	Bytes   int64
}

// WriteTreeOptions says how a tree is written.
type WriteTreeOptions struct {
	// Executable gives a file with any x bit mode 0700 instead of 0600. Folders are 0700, whatever the
	// umask.
	Executable bool
	// DryRun writes nothing and says what would be done.
	DryRun bool
}

// WrittenFile is one file that was written, or was there already.
type WrittenFile struct {
	// Name is relative to the root that it was placed beneath.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the hexadecimal digest of the content; Before is that of the file that it replaced,
	// empty where there was none.
	SHA256       string      `json:"sha256"`
	SHA256Before string      `json:"sha256_before,omitempty"`
	Mode         fs.FileMode `json:"mode"`
	Action       FileAction  `json:"action"`
}

// FileAction is what became of a file.
type FileAction string

// The actions. FileMounted is a file that the host sees already through a mount, so that nothing
// was copied.
const (
	FileCreated   FileAction = "created"
	FileReplaced  FileAction = "replaced"
	FileUnchanged FileAction = "unchanged"
	FileMounted   FileAction = "mounted"
)

// SyncReport is what became of the files that were to come home.
type SyncReport struct {
	State SyncState `json:"state"`
	// Files has the absolute path on the side that the files came to; names that are not UTF-8 are
	// written with \xNN.
	Files   []SyncedFile  `json:"files"`
	Refused []RefusedPath `json:"refused"`
	// Targets says where each of the sources came to of which anything was taken.
	Targets []SyncTarget `json:"landed,omitempty"`
	// FilesOmitted, RefusedOmitted and TargetsOmitted count the entries that a list of calls leaves
	// out; the call itself has all of them.
	FilesOmitted   int `json:"files_omitted,omitzero"`
	RefusedOmitted int `json:"refused_omitted,omitzero"`
	TargetsOmitted int `json:"landed_omitted,omitzero"`
	// Bytes are those of all files, copied or unchanged.
	Bytes int64 `json:"bytes"`
	// DryRun says that nothing was written.
	DryRun bool   `json:"dry_run,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// SyncTarget is the file or folder that a source came to.
type SyncTarget struct {
	// Source is absolute in the paths of the side that it comes from, Path in those of the other.
	Source string `json:"source"`
	Path   string `json:"path"`
}

// SyncState is how a sync ended, apart from how the tool did.
type SyncState string

// The states. A sync that is not complete has written nothing; one with refusals that were to be
// skipped is complete.
const (
	SyncComplete SyncState = "complete"
	SyncRefused  SyncState = "refused"
	SyncFailed   SyncState = "failed"
)

// SyncedFile is one file of a manifest.
type SyncedFile struct {
	Path string `json:"path"`
	// Source is where it came from, in the other side's paths.
	Source       string `json:"source"`
	Size         int64  `json:"size"`
	SHA256       string `json:"sha256"`
	SHA256Before string `json:"sha256_before,omitempty"`
	// Mode is octal text such as "0600".
	Mode   string     `json:"mode"`
	Action FileAction `json:"action"`
}

// RefusedPath is a path that was not taken, and why.
type RefusedPath struct {
	Path    string `json:"path"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// FileChange is a file that dray itself changed, as a file tool or a sync did. The trail keeps it.
type FileChange struct {
	// Environment says whose file it is, Path is its absolute path there.
	Environment EnvironmentKind `json:"environment"`
	Path        string          `json:"path"`
	Action      FileAction      `json:"action"`
	// SHA256Before and After are hexadecimal SHA-256 digests; Before is empty for a new file.
	SHA256Before string `json:"sha256_before,omitempty"`
	SHA256After  string `json:"sha256_after,omitempty"`
}

// PrintablePath writes the bytes of a path that are not UTF-8 as \xNN, since JSON has no place for
// them.
func PrintablePath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	var b strings.Builder
	for len(path) > 0 {
		r, n := utf8.DecodeRuneInString(path)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, path[0])
		} else {
			b.WriteString(path[:n])
		}
		path = path[n:]
	}
	return b.String()
}
