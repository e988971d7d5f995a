package dray

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Tree is a stream of files and directories: Files.ReadTree returns one, Files.WriteTree writes
// one. A directory comes before its entries. A tree read from a container was validated by the
// daemon's own reader: names, order, sizes and counts are within the requested limits, or Next and
// Read fail with a code. A Tree must not be used concurrently.
type Tree interface {
	// Next skips the rest of the current file and returns the next entry. It returns io.EOF after the
	// last entry. Any other error ends the tree: transfer_failed for a stream that breaks off or
	// violates the format, limit_exceeded or agent_lost.
	Next() (TreeEntry, error)
	// Reader reads the current file from TreeEntry.Offset, and returns io.EOF exactly at
	// TreeEntry.Size.
	io.Reader
	io.Closer
}

// TreeEntry is a file or directory of a tree, or one that was refused.
type TreeEntry struct {
	// Name is slash-separated and relative to the root of its Files: clean, without ".." and NUL,
	// otherwise any bytes.
	Name string
	// Type is "file" or "directory".
	Type string
	// Size is the length of the whole file in bytes. Offset is where its bytes begin in this tree; it
	// is positive only for a file that is resumed.
	Size, Offset int64
	// Mode is the permission bits.
	Mode fs.FileMode
	// Version changes when the content of the file may have changed. It is opaque, and comparable only
	// with another version of the same file.
	Version string
	// Refused is set for an entry that has only a name: path_invalid for a symlink, a device, a FIFO,
	// a socket and a file with a hard link elsewhere, denied, not_found for one that vanished, and
	// limit_exceeded.
	Refused *Error
}

// TreeLimits bound a tree. Zero is no limit.
type TreeLimits struct {
	// MaxFile and MaxTotal are in bytes. MaxFiles counts files and directories. MaxDepth counts the
	// directories between an entry and its source.
	MaxFile, MaxTotal  int64
	MaxFiles, MaxDepth int
}

// ReadTreeOptions select what Files.ReadTree reads.
type ReadTreeOptions struct {
	// Names are files and directories relative to the root. Directories include their entries.
	Names  []string
	Limits TreeLimits
	// Partial are files that the caller has in part or whole from a tree that broke off. A file that
	// still has the given version is read from byte Bytes on.
	Partial map[string]PartialFile
}

// PartialFile is the beginning of a file.
type PartialFile struct {
	Version string
	Bytes   int64
}

// WriteTreeOptions control how Files.WriteTree writes.
type WriteTreeOptions struct {
	// Executable gives a file with any x bit mode 0700 instead of 0600. Directories always get 0700.
	Executable bool
	// DryRun writes nothing and returns what would be written.
	DryRun bool
	// RefuseRepositories fails with denied if git would take a directory that is written to for a
	// repository although it is not named ".git", because of what exists there and what is written.
	RefuseRepositories bool
	// BeforeCommit is called with the files when all of them are staged and none is written. If it
	// fails, nothing is written. Only writes on the host call it. Nil is none.
	BeforeCommit func(files []WrittenFile) error
	// Remove has the files and directories that the commit removes. A directory is removed only if
	// everything in it is in Remove too. A name may also be in the tree, if a directory replaces a
	// file or the reverse; then everything in the old directory must be in Remove. Names of Remove
	// need an expectation.
	Remove []string
	// Expect has what must be at each name that the tree or Remove has, until the commit: the
	// hexadecimal SHA-256 of a regular file, ExpectDirectory, or ExpectAbsent. Parent directories
	// that are not entries of the tree need none. Anything else there is a conflict that names the
	// path, and nothing is written. The commit compares what it has just replaced or removed, so no
	// change of another process is lost; a file that a process has open for writing is a conflict
	// too. Nil expects nothing.
	//
	// Such a commit waits at most 30 s for another one beneath the same root.
	//
	// Remove and Expect are unsupported with DryRun, in containers, and where the file system cannot
	// exchange names.
	Expect map[string]string
}

// The expectations of WriteTreeOptions that are not a digest.
const (
	ExpectAbsent    = ""
	ExpectDirectory = "directory"
)

// WrittenFile is a file that was written or deleted, or that existed with the same content.
type WrittenFile struct {
	// Name is relative to the root beneath which the file was written.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 is the hexadecimal digest of the content, empty for a deleted file. SHA256Before is that
	// of the replaced or deleted file, empty if there was none.
	SHA256       string      `json:"sha256"`
	SHA256Before string      `json:"sha256_before,omitempty"`
	Mode         fs.FileMode `json:"mode"`
	Action       FileAction  `json:"action"`
}

// FileAction is what happened to a file.
type FileAction string

// The actions. FileMounted is a file that the host already has through a mount, so it was not
// copied. Only WriteTreeOptions.Remove deletes files.
const (
	FileCreated   FileAction = "created"
	FileReplaced  FileAction = "replaced"
	FileUnchanged FileAction = "unchanged"
	FileMounted   FileAction = "mounted"
	FileDeleted   FileAction = "deleted"
)

// SyncReport is the result of a sync.
type SyncReport struct {
	State SyncState `json:"state"`
	// Files have absolute paths on the side that was written. Bytes that are not UTF-8 appear as \xNN.
	Files   []SyncedFile  `json:"files"`
	Refused []RefusedPath `json:"refused"`
	// Missing are the declared outputs that did not exist when the call had ended. Refused lists them
	// as well, with not_found.
	Missing []string `json:"missing,omitempty"`
	// Targets are the destinations of the sources of which anything was copied.
	Targets []SyncTarget `json:"landed,omitempty"`
	// FilesOmitted, RefusedOmitted and TargetsOmitted count the entries that are not listed. A list of
	// calls omits all but the first. The single invocation has all files, and the refused paths and
	// targets up to 1 MiB of JSON.
	FilesOmitted   int `json:"files_omitted,omitzero"`
	RefusedOmitted int `json:"refused_omitted,omitzero"`
	TargetsOmitted int `json:"landed_omitted,omitzero"`
	// Bytes is the total size of all files, copied or unchanged.
	Bytes int64 `json:"bytes"`
	// DryRun means that nothing was written.
	DryRun bool   `json:"dry_run,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// SyncTarget is the file or directory that a source was copied to.
type SyncTarget struct {
	// Source is an absolute path on the side that was read, Path on the side that was written.
	Source string `json:"source"`
	Path   string `json:"path"`
}

// SyncState is how a sync ended, independent of the result of the tool.
type SyncState string

// The states. A sync that is not complete has written nothing. One with refused paths that were to
// be skipped is complete.
const (
	SyncComplete SyncState = "complete"
	SyncRefused  SyncState = "refused"
	SyncFailed   SyncState = "failed"
)

// SyncedFile is one file of a report.
type SyncedFile struct {
	Path string `json:"path"`
	// Source is the path on the side that was read.
	Source       string `json:"source"`
	Size         int64  `json:"size"`
	SHA256       string `json:"sha256"`
	SHA256Before string `json:"sha256_before,omitempty"`
	// Mode is octal text such as "0600".
	Mode   string     `json:"mode"`
	Action FileAction `json:"action"`
}

// RefusedPath is a path that was not copied, and why.
type RefusedPath struct {
	Path    string `json:"path"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// FileChange is a file that dray itself changed, by a file tool or a sync. The audit log records
// it.
type FileChange struct {
	// Environment is where the file is, Path its absolute path there.
	Environment EnvironmentKind `json:"environment"`
	Path        string          `json:"path"`
	Action      FileAction      `json:"action"`
	// SHA256Before and SHA256After are hexadecimal. SHA256Before is empty for a new file, SHA256After
	// for a deleted one.
	SHA256Before string `json:"sha256_before,omitempty"`
	SHA256After  string `json:"sha256_after,omitempty"`
}

// PrintablePath returns path with bytes that are not UTF-8 written as \xNN, since JSON cannot carry
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
