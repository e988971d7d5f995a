package trust

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/linux"
)

// fileVersion is the version of trust.json. Files of other versions are refused.
const fileVersion = 1

// maxRecordFile is the maximum size of trust.json in bytes.
const maxRecordFile = 16 << 20

type record struct {
	Workspace string `json:"workspace"`
	Config    string `json:"config"`
	Hash      string `json:"hash"`
	// InputsHash is the hash without the model of compose, empty if there is no model. It is known
	// without running compose.
	InputsHash string    `json:"inputs,omitzero"`
	At         time.Time `json:"at"`
	// Facts is what was trusted, for Review.Changed. Records of earlier versions have none.
	Facts []string `json:"facts,omitzero"`
}

func (r record) inputsHash() string { return cmp.Or(r.InputsHash, r.Hash) }

type document struct {
	Version int      `json:"version"`
	Trusted []record `json:"trusted"`
}

// recordFile is trust.json. It is replaced atomically under a lock. A file that another user could
// have written is refused.
type recordFile struct {
	path string
}

// record returns what is trusted for a canonical location, or the zero record.
func (f recordFile) record(loc devcontainer.Location) (record, error) {
	doc, err := f.read()
	if err != nil {
		return record{}, f.unusable(err)
	}
	for _, r := range doc.Trusted {
		if r.location() == loc {
			return r, nil
		}
	}
	return record{}, nil
}

func (r record) location() devcontainer.Location {
	return devcontainer.Location{Workspace: r.Workspace, Config: r.Config}
}

// put replaces the trust in one location.
func (f recordFile) put(added record) error {
	return f.change(func(records []record) []record {
		return append(without(records, added.location()), added)
	})
}

// remove removes the trust in one location, if there is one.
func (f recordFile) remove(loc devcontainer.Location) error {
	return f.change(func(records []record) []record { return without(records, loc) })
}

func without(records []record, loc devcontainer.Location) []record {
	return slices.DeleteFunc(records, func(r record) bool { return r.location() == loc })
}

// change replaces the records by what edit makes of them.
func (f recordFile) change(edit func([]record) []record) (err error) {
	unlock, err := lockBeside(f.path)
	if err != nil {
		return f.unusable(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	doc, err := f.read()
	if err != nil {
		return f.unusable(err)
	}
	doc.Version = fileVersion
	doc.Trusted = edit(doc.Trusted)
	slices.SortFunc(doc.Trusted, func(a, b record) int {
		return strings.Compare(a.Workspace+"\x00"+a.Config, b.Workspace+"\x00"+b.Config)
	})
	text, err := json.Marshal(doc, jsontext.WithIndent("  "))
	if err == nil {
		err = helper.ReplaceFile(f.path, append(text, '\n'))
	}
	if err != nil {
		return f.unusable(err)
	}
	return nil
}

func (f recordFile) unusable(err error) error {
	return dray.Errorf(dray.CodeWorkspaceUntrusted, "read the trusted workspaces: %w", err).
		WithHint("repair or remove %s; if it is removed, trust the workspaces again", f.path)
}

// read returns the document, empty if the file does not exist.
func (f recordFile) read() (document, error) {
	var doc document
	file, err := os.OpenFile(f.path,
		os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if linux.IsAbsent(err) {
		return doc, nil
	}
	if err != nil {
		return doc, err
	}
	defer func() { _ = file.Close() }() // only read
	if err := checkPrivate(file); err != nil {
		return doc, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRecordFile+1))
	if err != nil {
		return doc, err
	}
	if len(text) > maxRecordFile {
		return doc, fmt.Errorf("%s is larger than %d bytes", f.path, maxRecordFile)
	}
	if err := json.Unmarshal(text, &doc, json.RejectUnknownMembers(true)); err != nil {
		return document{}, fmt.Errorf("read %s: %w", f.path, err)
	}
	if doc.Version != fileVersion {
		return document{}, fmt.Errorf("%s has version %d, this program reads %d", f.path,
			doc.Version, fileVersion)
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
