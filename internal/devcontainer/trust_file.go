package devcontainer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// trustVersion is the version of trust.json. Files of other versions are refused.
const trustVersion = 1

// maxTrustFile is the maximum size of trust.json in bytes.
const maxTrustFile = 16 << 20

type trustRecord struct {
	Workspace string `json:"workspace"`
	Config    string `json:"config"`
	Hash      string `json:"hash"`
	// InputsHash is the hash without the model of compose, empty if there is no model. It is known
	// without running compose.
	InputsHash string    `json:"inputs,omitzero"`
	At         time.Time `json:"at"`
}

func (r trustRecord) inputsHash() string { return cmp.Or(r.InputsHash, r.Hash) }

type trustDocument struct {
	Version int           `json:"version"`
	Trusted []trustRecord `json:"trusted"`
}

// trustFile is trust.json. It is replaced atomically under a lock. A file that another user could
// have written is refused.
type trustFile struct {
	path string
}

// record returns what is trusted for a canonical location, or the zero record.
func (f trustFile) record(loc Location) (trustRecord, error) {
	doc, err := f.read()
	if err != nil {
		return trustRecord{}, f.unusable(err)
	}
	if i := slices.IndexFunc(doc.Trusted, loc.isRecorded); i >= 0 {
		return doc.Trusted[i], nil
	}
	return trustRecord{}, nil
}

func (l Location) isRecorded(r trustRecord) bool {
	return r.Workspace == l.Workspace && r.Config == l.Config
}

// put replaces the trust in one location.
func (f trustFile) put(record trustRecord) (err error) {
	unlock, err := lockBeside(f.path)
	if err != nil {
		return f.unusable(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	doc, err := f.read()
	if err != nil {
		return f.unusable(err)
	}
	doc.Version = trustVersion
	loc := Location{Workspace: record.Workspace, Config: record.Config}
	doc.Trusted = slices.DeleteFunc(doc.Trusted, loc.isRecorded)
	doc.Trusted = append(doc.Trusted, record)
	slices.SortFunc(doc.Trusted, func(a, b trustRecord) int {
		return strings.Compare(a.Workspace+"\x00"+a.Config, b.Workspace+"\x00"+b.Config)
	})
	text, err := json.Marshal(doc, jsontext.WithIndent("  "))
	if err == nil {
		err = replaceFile(f.path, append(text, '\n'))
	}
	if err != nil {
		return f.unusable(err)
	}
	return nil
}

func (f trustFile) unusable(err error) error {
	return dray.Errorf(dray.CodeWorkspaceUntrusted, "read the trusted workspaces: %w", err).
		WithHint("repair or remove %s; if it is removed, trust the workspaces again", f.path)
}

// read returns the document, empty if the file does not exist.
func (f trustFile) read() (trustDocument, error) {
	var doc trustDocument
	file, err := os.OpenFile(f.path,
		os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if isAbsent(err) {
		return doc, nil
	}
	if err != nil {
		return doc, err
	}
	defer func() { _ = file.Close() }() // only read
	if err := checkPrivate(file); err != nil {
		return doc, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTrustFile+1))
	if err != nil {
		return doc, err
	}
	if len(text) > maxTrustFile {
		return doc, fmt.Errorf("%s is larger than %d bytes", f.path, maxTrustFile)
	}
	if err := json.Unmarshal(text, &doc, json.RejectUnknownMembers(true)); err != nil {
		return trustDocument{}, fmt.Errorf("read %s: %w", f.path, err)
	}
	if doc.Version != trustVersion {
		return trustDocument{}, fmt.Errorf("%s has version %d, this program reads %d", f.path,
			doc.Version, trustVersion)
	}
	return doc, nil
}

// checkPrivate fails unless only the user of this process can have written an open file.
func checkPrivate(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", file.Name(), linux.ErrNotRegular)
	case !ok || int64(stat.Uid) != int64(os.Geteuid()):
		return fmt.Errorf("%s belongs to another user", file.Name())
	case info.Mode().Perm()&0o022 != 0:
		mode := info.Mode().Perm()
		return fmt.Errorf("%s can be written by others: its mode is %04o", file.Name(), mode)
	}
	return nil
}

// lockBeside locks the file PATH.lock until unlock is called: a file that is replaced cannot be
// locked itself.
func lockBeside(path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC,
		0o600)
	if err != nil {
		return nil, err
	}
	err = linux.Retry(func() error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return file.Close, nil // which releases the lock
}

// replaceFile atomically replaces a file by one of mode 0600 and synchronizes it to disk.
func replaceFile(path string, content []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error is returned
		}
	}()
	_, writeErr := file.Write(content)
	if err := errors.Join(writeErr, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
