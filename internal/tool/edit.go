package tool

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// maxEdited is how large a file may be before and after an edit, in bytes.
const maxEdited = 16 << 20

type editInput struct {
	Path  string        `json:"path"`
	Edits []replacement `json:"edits"`
	Patch *string       `json:"patch"`
}

type editOutput struct {
	Path     string `json:"path"`
	Replaced int    `json:"replaced"`
	SHA256   string `json:"sha256"`
}

// checkEditInput asks for edits or a patch, and for a patch that can be read. A schema could say the first with oneOf, which many models' tool
// interfaces refuse.
func checkEditInput(in editInput) []dray.Detail {
	if (in.Edits == nil) == (in.Patch == nil) {
		return []dray.Detail{{Pointer: "/input", Message: "give either edits or patch"}}
	}
	if in.Patch != nil {
		if _, err := parsePatch(*in.Patch); err != nil {
			return []dray.Detail{{Pointer: "/input/patch", Message: cut(err.Error(), maxMessage)}}
		}
	}
	return nil
}

func editFile(ctx context.Context, at fileScope, in editInput) (any, error) {
	file, done, err := at.lockForWrite(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	defer done()
	w := fileWrite{fileScope: at, file: file, op: "edit", action: dray.FileReplaced}
	old, err := w.readForEdit(ctx)
	if err != nil {
		return nil, err
	}
	content, replaced, err := in.apply(ctx, old)
	if errors.Is(err, errTooLarge) || len(content) > maxEdited {
		return nil, file.tooLarge("would have")
	}
	if err != nil {
		return nil, file.misfit(err)
	}
	w.content, w.sum = content, digest(content)
	if w.sum == w.before {
		w.action = dray.FileUnchanged
	}
	w.unchanged = func() error { return w.checkUnchanged(ctx) }
	if err := w.replace(ctx); err != nil {
		return nil, err
	}
	return editOutput{file.path, replaced, w.sum}, nil
}

func (in editInput) apply(ctx context.Context, old []byte) (content []byte, replaced int, err error) {
	if in.Patch == nil {
		return applyEdits(ctx, old, in.Edits)
	}
	hunks, err := parsePatch(*in.Patch)
	if err != nil {
		return nil, 0, &mismatchError{"/input/patch", err.Error(), ""}
	}
	content, err = applyPatch(ctx, old, hunks)
	return content, len(hunks), err
}

// readForEdit reads the file that is to be edited.
func (w *fileWrite) readForEdit(ctx context.Context) ([]byte, error) {
	info, err := w.regular()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, w.file.wrapError(w.op, err)
	}
	if err != nil {
		return nil, err
	}
	content, err := w.readCapped(ctx)
	if err != nil {
		return nil, err
	}
	w.mode, w.before = info.Mode.Perm(), digest(content)
	return content, nil
}

// readCapped reads all that is there, up to maxEdited.
func (w *fileWrite) readCapped(ctx context.Context) (content []byte, err error) {
	err = w.reading(ctx, w.file.name, 0, func(r io.Reader, _ dray.FileInfo) error {
		content, err = io.ReadAll(io.LimitReader(r, maxEdited+1))
		return err
	})
	if err != nil && ctx.Err() == nil {
		err = w.file.wrapError(w.op, err)
	}
	if len(content) > maxEdited {
		err = w.file.tooLarge("has")
	}
	return content, err
}

// checkUnchanged refuses to replace a file that somebody else has changed since it was read. Between this and the rename lies a moment in which
// a change would still be lost.
func (w *fileWrite) checkUnchanged(ctx context.Context) error {
	info, err := w.regular()
	if err == nil {
		var now []byte
		now, err = w.readCapped(ctx)
		if err == nil && digest(now) == w.before && info.Mode.Perm() == w.mode {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return dray.Errorf(dray.CodeConflict, "edit %s: it was changed by somebody else meanwhile, and is as they left it", w.file.path).
		WithHint("read it again and repeat the edit on what is there now")
}

// errTooLarge is an edit that would leave more than maxEdited.
var errTooLarge = errors.New("it would be too large")

func (t target) tooLarge(has string) error {
	return dray.Errorf(dray.CodeLimitExceeded, "edit %s: it %s more than %d MiB", t.path, has, maxEdited>>20).
		WithHint("use a program such as sed, through exec or shell")
}

// mismatchError is an edit or a hunk that the file's content does not admit.
type mismatchError struct{ pointer, message, hint string }

func (m *mismatchError) Error() string { return m.message }

func (t target) misfit(err error) error {
	m, ok := errors.AsType[*mismatchError](err)
	if !ok {
		return err
	}
	e := dray.Errorf(dray.CodeInvalidInput, "edit %s: %s; nothing was changed", t.path, m.message)
	e.Details = []dray.Detail{{Pointer: m.pointer, Message: m.message}}
	if m.hint == "" {
		m.hint = "read the file again, and take what is to be replaced from there"
	}
	return e.WithHint("%s", m.hint)
}
