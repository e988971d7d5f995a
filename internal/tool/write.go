package tool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"

	"github.com/dray-dev/dray"
)

type writeOutput struct {
	Path   string          `json:"path"`
	Size   int64           `json:"size"`
	SHA256 string          `json:"sha256"`
	Action dray.FileAction `json:"action"`
}

func writeFile(ctx context.Context, at fileScope, in writeInput) (any, error) {
	content, err := in.bytes()
	if err != nil {
		return nil, fmt.Errorf("decode the content: %w", err)
	}
	file, done, err := at.lockForWrite(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	defer done()
	w := fileWrite{fileScope: at, file: file, op: "write", content: content, sum: digest(content)}
	if err := w.plan(ctx, in.Mode); err != nil {
		return nil, err
	}
	if err := w.replace(ctx); err != nil {
		return nil, err
	}
	return writeOutput{file.path, int64(len(content)), w.sum, w.action}, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// fileWrite is one atomic write of a file.
type fileWrite struct {
	fileScope
	file    target
	op      string // "write" or "edit", for errors
	content []byte
	sum     string
	mode    fs.FileMode
	action  dray.FileAction
	// tempCreated reports whether the temporary file was created.
	tempCreated bool
	// before is the digest of the replaced file. It is empty if there is none, or if it cannot be
	// read.
	before string
	// unchanged, if set, is called just before the rename and returns an error if the file has
	// changed.
	unchanged func() error
}

// plan determines the action and the mode from the existing file.
func (w *fileWrite) plan(ctx context.Context, mode string) error {
	old, err := w.regular()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.action, w.mode = dray.FileCreated, 0o644
	case err != nil:
		return err
	default:
		w.action, w.mode = dray.FileReplaced, old.Mode.Perm()
		w.before = w.oldDigest(ctx)
	}
	if mode != "" {
		bits, err := strconv.ParseUint(mode, 8, 9)
		if err != nil {
			return fmt.Errorf("parse mode %q: %w", mode, err)
		}
		w.mode = fs.FileMode(bits)
	}
	if w.before == w.sum && w.mode == old.Mode.Perm() {
		w.action = dray.FileUnchanged
	}
	return nil
}

// regular returns the info of the file. It refuses a symlink, which it neither follows nor
// replaces: the caller must say which of the two files is meant.
func (w *fileWrite) regular() (dray.FileInfo, error) {
	info, err := w.files.Stat(w.file.name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		err = w.file.wrapError(w.op, err)
	case err == nil && info.Type != "file":
		err = w.file.wrongTypeError(w.op, info, "name a regular file or a new file")
	}
	return info, err
}

// oldDigest returns the digest of the existing file for the audit log, or "" if it cannot be read,
// which does not prevent the write.
func (w *fileWrite) oldDigest(ctx context.Context) string {
	h := sha256.New()
	err := w.reading(ctx, w.file.name, 0, func(r io.Reader, _ dray.FileInfo) error {
		_, err := io.Copy(h, r)
		return err
	})
	if err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// replace writes a temporary file beside the target and renames it, so that no reader sees a
// partial file. If it fails it removes the temporary file.
func (w *fileWrite) replace(ctx context.Context) error {
	if w.action == dray.FileUnchanged {
		return nil
	}
	temp := path.Join(path.Dir(w.file.name), ".dray-"+rand.Text())
	if err := w.fill(temp); err != nil {
		return w.removeTemp(temp, w.file.wrapError(w.op, err))
	}
	if ctx.Err() != nil {
		return w.removeTemp(temp, context.Cause(ctx))
	}
	if w.unchanged != nil {
		if err := w.unchanged(); err != nil {
			return w.removeTemp(temp, err)
		}
	}
	err := w.files.Rename(temp, w.file.name)
	// without a reply of the agent the rename may have happened
	if err == nil || dray.CodeOf(err) == dray.CodeAgentLost {
		w.recordChange()
	}
	if err != nil {
		return w.removeTemp(temp, w.file.wrapError(w.op, err))
	}
	return nil
}

// recordChange records the change for the audit log (AU-11).
func (w *fileWrite) recordChange() {
	*w.changes = append(*w.changes, dray.FileChange{
		Environment: w.kind, Path: w.file.path, Action: w.action, SHA256Before: w.before,
		SHA256After: w.sum,
	})
}

// maxRemovals is how often removeTemp tries while another process exchanges the directory of the
// file.
const maxRemovals = 16

// removeTemp removes the temporary file and returns why. A directory that is exchanged at this
// moment is usually back a moment later.
func (w *fileWrite) removeTemp(temp string, why error) error {
	for range maxRemovals {
		err := w.files.Remove(temp)
		if err == nil || !w.tempCreated || dray.CodeOf(err) == dray.CodeAgentLost {
			break
		}
	}
	return why
}

func (w *fileWrite) fill(temp string) error {
	f, err := w.files.Create(temp, w.mode)
	if err != nil {
		return err
	}
	w.tempCreated = true
	_, err = f.Write(w.content)
	return errors.Join(err, f.Close())
}
