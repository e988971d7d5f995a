// Package assets has what the Pyodide runtime needs on disk: Deno, Pyodide and wheels, each file
// with a pinned SHA-256.
//
// An asset folder is
//
//	deno              the program, unless the configuration names another path
//	pyodide/          pyodide.mjs, pyodide.asm.mjs, pyodide.asm.wasm, python_stdlib.zip,
//	                  pyodide-lock.json, and wheels
//	extra-lock.json   the wheels that Pyodide's own lock does not have
//
// and nothing else, since any file there could be loaded. [Pinned] has the checksums of Deno and
// Pyodide, Pyodide's lock those of its wheels, and extra-lock.json those of the operator's own.
//
// # What verification proves
//
// [Store.Open] is called before each start of a worker. The first call hashes every file and keeps
// its identity: device, inode, size, owner, mode and the times of the last change of content and of
// the inode. A later call compares the identities, and hashes everything again if one differs. No
// program can set the time of the inode's change, so a file that was written, replaced, or had its
// time set back is found. Times are coarse: a file that changed less than two seconds before it was
// hashed is hashed again by the next call.
//
// Files and folders are refused if they belong to another user than root and the daemon's, or if
// others may write to them. Folders above them are refused if everybody may rename their entries.
// So what runs is what was pinned, unless root, or a program with the uid of the daemon, changed it
// between the check and the start. Such a program could change the daemon.
package assets

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/dray-dev/dray"
)

// The names in an asset folder.
const (
	denoName    = "deno"
	pyodideName = "pyodide"
	extraName   = "extra-lock.json"
	lockPath    = pyodideName + "/pyodide-lock.json"
)

// Options is where the assets are.
type Options struct {
	// Dir is the asset folder, absolute. Empty is [DefaultDir] with the variables of this process.
	Dir string
	// Deno is the Deno program, absolute, if it is not in Dir. It has the pinned checksum too.
	Deno string
	// Manifest has other pins, for tests. Empty is [Pinned].
	Manifest Manifest
}

// Store is the assets of one folder. It is safe for concurrent use.
type Store struct {
	dir, deno string
	// configured says that dir is not the default.
	configured bool
	pins       Manifest

	mu       sync.Mutex
	verified *verified
}

// New returns the store of a folder. It reads nothing.
func New(opts Options) *Store {
	s := &Store{
		dir: opts.Dir, deno: opts.Deno, configured: opts.Dir != "", pins: opts.Manifest,
	}
	if len(s.pins.Packages) == 0 {
		s.pins = Pinned()
	}
	if s.dir == "" {
		s.dir = DefaultDir(os.Getenv)
	}
	return s
}

// Dir returns the asset folder. It is empty if none is configured and there is no home directory.
func (s *Store) Dir() string { return s.dir }

// DefaultDir returns the asset folder of this release: below $XDG_DATA_HOME/dray/python, or else
// ~/.local/share/dray/python. It is empty without a home directory.
func DefaultDir(getenv func(string) string) string {
	data := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // the specification requires that it is then ignored
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, "dray", "python", Pinned().release())
}

// release is the name of the default folder: another release of dray does not use this one's.
func (m Manifest) release() string {
	return "deno-" + m.version(denoName) + "-pyodide-" + m.version(lockPath)
}

// Assets are verified files.
type Assets struct {
	// Deno is the absolute path of the program.
	Deno string
	// Dir is the absolute path of the folder with Pyodide and the wheels, which a worker may read.
	Dir string
	// Lock is the lock of the packages that are there, for Pyodide's option lockFileContents. Files
	// are relative to Dir.
	Lock []byte
	// ID is a digest of all files, in hexadecimal digits.
	ID string
	// DenoVersion, PyodideVersion and PythonVersion are versions, for example 2.9.6, 314.0.7, 3.14.2.
	DenoVersion, PyodideVersion, PythonVersion string
	// Packages are the wheels that are there, sorted by name.
	Packages []Wheel
}

// Wheel is a package whose file is in the folder.
type Wheel struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Imports []string `json:"imports"`
	Depends []string `json:"depends"`
	File    string   `json:"file"`
}

// verified are assets with what was seen of their files.
type verified struct {
	*Folder
	assets Assets
}

// Open verifies the assets. It fails with helper_missing and a hint if a file is missing, is not
// the pinned one, or could be changed by others; the error has a [*Problem] in its chain.
func (s *Store) Open(ctx context.Context) (Assets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verified != nil && s.verified.Unchanged() {
		return s.verified.assets, nil
	}
	s.verified = nil
	v, err := s.verify(ctx)
	if ended := context.Cause(ctx); ended != nil {
		return Assets{}, ended
	}
	if err != nil {
		return Assets{}, unusable(err)
	}
	s.verified = v
	return v.assets, nil
}

// unusable returns the error for callers.
func unusable(err error) error {
	p, ok := asProblem(err)
	if !ok {
		return dray.Errorf(dray.CodeHelperMissing, "verify the assets of Pyodide: %w", err).
			WithHint("run `dray doctor`")
	}
	return dray.Errorf(dray.CodeHelperMissing, "%w", err).WithHint("%s", p.fix())
}
