package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// blobRef names the file that holds a value too long for a row.
type blobRef struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// blobStore are content-addressed files in one folder: the name is the SHA-256 of the content, so
// the same content lies there once.
type blobStore struct{ dir string }

const newPrefix = ".new-"

// openBlobs makes the folder, private to its owner, and removes what a crash left half written.
func openBlobs(dir string) (*blobStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the captures folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // the x of a folder lets its owner in
		return nil, fmt.Errorf("make the captures folder private: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look into the captures folder: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a leftover costs space and nothing else
		}
	}
	return &blobStore{dir: dir}, nil
}

// put stores data; when it returns, the content and its name are on disk.
func (f *blobStore) put(data []byte) (blobRef, error) {
	sum := sha256.Sum256(data)
	ref := blobRef{SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(data))}
	if !f.contains(ref) {
		if err := f.write(ref, data); err != nil {
			return blobRef{}, err
		}
	}
	// Also for a file that was there: whoever is just making it may not have come to this yet.
	return ref, syncDir(f.dir)
}

// contains says whether the content is there. A file gets its name only once it is whole; the size
// tells a truncation after that.
func (f *blobStore) contains(ref blobRef) bool {
	info, err := os.Lstat(filepath.Join(f.dir, ref.SHA256))
	return err == nil && info.Mode().IsRegular() && info.Size() == ref.Bytes
}

func (f *blobStore) write(ref blobRef, data []byte) (err error) {
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
		return fmt.Errorf("name a capture: %w", err)
	}
	return nil
}

// get reads a file and refuses it if it is not what was stored.
func (f *blobStore) get(ref blobRef) ([]byte, error) {
	if sum, err := hex.DecodeString(ref.SHA256); err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("read a capture: %q is not a SHA-256", ref.SHA256)
	}
	data, err := os.ReadFile(filepath.Join(f.dir, ref.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the capture %s is gone", ref.SHA256)
	}
	if err != nil {
		return nil, fmt.Errorf("read a capture: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, fmt.Errorf("the capture %s was changed", ref.SHA256)
	}
	return data, nil
}

// syncDir makes the names in a folder durable.
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
