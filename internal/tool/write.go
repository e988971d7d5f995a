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
		return nil, fmt.Errorf("read the content: %w", err)
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

// fileWrite is one file on its way.
type fileWrite struct {
	fileScope
	file    target
	op      string // for errors
	content []byte
	sum     string
	mode    fs.FileMode
	action  dray.FileAction
	// tempCreated says that the temporary file came to be.
	tempCreated bool
	// before is the digest of what is replaced; empty where nothing is, or it cannot be read.
	before string
	// unchanged, if it is set, refuses to replace what is no longer as it was; it is asked at the last
	// moment.
	unchanged func() error
}

// plan decides what is to be done from what is there.
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
			return fmt.Errorf("read mode %q: %w", mode, err)
		}
		w.mode = fs.FileMode(bits)
	}
	if w.before == w.sum && w.mode == old.Mode.Perm() {
		w.action = dray.FileUnchanged
	}
	return nil
}

// regular says what is there. A link is refused, not followed and not replaced: the caller has to
// say which of the two files is meant.
func (w *fileWrite) regular() (dray.FileInfo, error) {
	info, err := w.files.Stat(w.file.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return info, err
	case err != nil:
		return info, w.file.wrapError(w.op, err)
	case info.Type != "file":
		return info, w.file.wrongTypeError(w.op, info, "name a regular file, or a new one")
	}
	return info, nil
}

// oldDigest reads what is there, for the trail. A file that cannot be read is written all the same,
// or that fails for its own reason.
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

// replace writes a temporary file beside the target and renames it, so that nobody ever sees a
// part. Nothing of it stays behind if it fails.
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
	// where nobody knows it may have happened
	if err == nil || dray.CodeOf(err) == dray.CodeAgentLost {
		w.recordChange()
	}
	if err != nil {
		return w.removeTemp(temp, w.file.wrapError(w.op, err))
	}
	return nil
}

// recordChange records the change for the trail (AU-11).
func (w *fileWrite) recordChange() {
	*w.changes = append(*w.changes, dray.FileChange{
		Environment: w.kind, Path: w.file.path,
		Action: w.action, SHA256Before: w.before, SHA256After: w.sum,
	})
}

// maxRemovals is how often the temporary file is tried to be removed while somebody exchanges the
// folder that it lies in.
const maxRemovals = 16

// removeTemp takes the temporary file away. A folder that is exchanged for another in that moment
// is mostly back in the next.
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
