package audit

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// blobRef names the file of a value that is too long for a row.
type blobRef struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// name returns the column value of a reference, NULL for nil.
func (r *blobRef) name() sql.NullString {
	if r == nil {
		return sql.NullString{}
	}
	return nullString(r.SHA256)
}

// blobStore stores content-addressed files in one directory: the name of a file is the SHA-256 of
// its content.
type blobStore struct {
	dir string
	// timeout bounds the wait for the disk; a write that the kernel does not end goes on.
	timeout time.Duration
	writes  chan struct{} // has a value for each write
	// using is held while a file is found and marked as used, and while an unused one is removed.
	using sync.Mutex
}

// maxWrites bounds the writes that wait for a disk that does not respond: each keeps a thread.
const maxWrites = 64

const newPrefix = ".new-"

// openBlobs creates the directory, private to its owner, and removes files that a crash left
// incomplete.
func openBlobs(dir string, timeout time.Duration) (*blobStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the captures directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs x
		return nil, fmt.Errorf("make the captures directory private: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the captures directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a leftover only takes space
		}
	}
	return &blobStore{dir: dir, timeout: timeout, writes: make(chan struct{}, maxWrites)}, nil
}

// put stores data. When it returns, the content and its name are on disk. It fails with errTimedOut
// if the disk does not respond in time.
func (f *blobStore) put(data []byte) (*blobRef, error) {
	ref := &blobRef{SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Bytes: int64(len(data))}
	timer := time.NewTimer(f.timeout)
	defer timer.Stop()
	select {
	case f.writes <- struct{}{}:
	case <-timer.C:
		return nil, errTimedOut
	}
	done := make(chan error, 1)
	go func() {
		done <- f.store(ref, data)
		<-f.writes
	}()
	select {
	case err := <-done:
		return ref, err
	case <-timer.C:
		return nil, errTimedOut
	}
}

func (f *blobStore) store(ref *blobRef, data []byte) error {
	if !f.use(ref) {
		if err := f.write(ref, data); err != nil {
			return err
		}
	}
	// An existing file is synced too: another call may have renamed it just now.
	return syncDir(f.dir)
}

// use reports whether the content is stored, and marks it as used now, so that retention does not
// remove it before the event that refers to it is committed. A file gets its name when it is
// complete; the size detects a later truncation.
func (f *blobStore) use(ref *blobRef) bool {
	f.using.Lock()
	defer f.using.Unlock()
	path := filepath.Join(f.dir, ref.SHA256)
	info, err := os.Lstat(path)
	now := time.Now()
	return err == nil && info.Mode().IsRegular() && info.Size() == ref.Bytes &&
		os.Chtimes(path, now, now) == nil
}

func (f *blobStore) write(ref *blobRef, data []byte) (err error) {
	tmp, err := os.CreateTemp(f.dir, newPrefix+"*")
	if err != nil {
		return fmt.Errorf("create a capture: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = errors.Join(tmp.Chmod(0o600), tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("write a capture: %w", err)
	}
	if err = os.Rename(tmp.Name(), filepath.Join(f.dir, ref.SHA256)); err != nil {
		return fmt.Errorf("rename a capture: %w", err)
	}
	return nil
}

// get reads a file and fails if its content is not what was stored.
func (f *blobStore) get(ref *blobRef) ([]byte, error) {
	if sum, err := hex.DecodeString(ref.SHA256); err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("read a capture: %q is not a SHA-256", ref.SHA256)
	}
	data, err := os.ReadFile(filepath.Join(f.dir, ref.SHA256))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the capture %s is missing", ref.SHA256)
	case err != nil:
		return nil, fmt.Errorf("read a capture: %w", err)
	case fmt.Sprintf("%x", sha256.Sum256(data)) != ref.SHA256:
		return nil, fmt.Errorf("the capture %s was changed", ref.SHA256)
	}
	return data, nil
}

// syncDir syncs the names in a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s to sync it: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
