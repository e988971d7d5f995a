package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// maxEdited is the maximum size in bytes of a file before and after an edit.
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

// checkEditInput requires edits or a valid patch. A schema could require exactly one of them with
// oneOf, which the tool interfaces of many models refuse.
func checkEditInput(in editInput) []dray.Detail {
	if (in.Edits == nil) == (in.Patch == nil) {
		return violation("/input", "set either edits or patch")
	}
	if in.Patch != nil {
		if _, err := parsePatch(*in.Patch); err != nil {
			return violation("/input/patch", err.Error())
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
		return nil, file.mismatch(err)
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

func (in editInput) apply(ctx context.Context, old []byte) ([]byte, int, error) {
	if in.Patch == nil {
		return applyEdits(ctx, old, in.Edits)
	}
	hunks, err := parsePatch(*in.Patch)
	if err != nil {
		return nil, 0, &mismatchError{"/input/patch", err.Error(), ""}
	}
	content, err := applyPatch(ctx, old, hunks)
	return content, len(hunks), err
}

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

// readCapped reads the whole file. It fails if the file has more than maxEdited bytes.
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

// checkUnchanged fails with the code conflict if the file has changed since it was read. A change
// between this check and the rename is lost.
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
	return dray.Errorf(dray.CodeConflict,
		"edit %s: another process changed the file meanwhile; it was left as it is", w.file.path).
		WithHint("read the file again and repeat the edit on its new content")
}

// errTooLarge is returned for an edit whose result exceeds maxEdited.
var errTooLarge = errors.New("the result is too large")

func (t target) tooLarge(has string) error {
	return dray.Errorf(dray.CodeLimitExceeded, "edit %s: the file %s more than %d MiB", t.path, has,
		maxEdited>>20).
		WithHint("use a program such as sed, through exec or shell")
}

// mismatchError is an edit or a hunk that does not match the content of the file.
type mismatchError struct{ pointer, message, hint string }

func (m *mismatchError) Error() string { return m.message }

func (t target) mismatch(err error) error {
	m, ok := errors.AsType[*mismatchError](err)
	if !ok {
		return err
	}
	e := dray.Errorf(dray.CodeInvalidInput, "edit %s: %s; nothing was changed", t.path, m.message)
	e.Details = []dray.Detail{{Pointer: m.pointer, Message: m.message}}
	if m.hint == "" {
		m.hint = "read the file again and copy the text to replace from there"
	}
	return e.WithHint("%s", m.hint)
}

type replacement struct {
	Old string `json:"old"`
	New string `json:"new"`
	// Count is the number of times that Old must occur. Zero means once.
	Count jsonInt `json:"count"`
}

// applyEdits applies the replacements in order, each to the result of the one before. The first
// that does not match, and the end of ctx, end all of them.
func applyEdits(ctx context.Context, content []byte, edits []replacement) ([]byte, int, error) {
	replaced := 0
	for i, e := range edits {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		want := max(int(e.Count), 1)
		old := []byte(e.Old)
		got, overlap := occurrences(content, old)
		if got != want || overlap {
			return nil, 0, e.mismatch(i, len(edits), got, want, overlap, content)
		}
		if len(content)+got*(len(e.New)-len(e.Old)) > maxEdited {
			return nil, 0, errTooLarge
		}
		content = bytes.ReplaceAll(content, old, []byte(e.New))
		replaced += got
	}
	return content, replaced, nil
}

// occurrences returns how often old occurs, and whether two occurrences overlap, which makes the
// edit ambiguous. It stops at the first overlap: a long run of one character has as many
// occurrences as bytes, and comparing each would take quadratic time.
func occurrences(content, old []byte) (count int, overlap bool) {
	last := -len(old)
	for at := 0; ; {
		i := bytes.Index(content[at:], old)
		if i < 0 {
			return count, false
		}
		at += i
		count++
		if at < last+len(old) {
			return count, true
		}
		last = at
		at++
	}
}

func (e replacement) mismatch(i, of, got, want int, overlap bool, content []byte) error {
	m, where := &mismatchError{pointer: fmt.Sprintf("/input/edits/%d/old", i)}, "old"
	if of > 1 {
		where = fmt.Sprintf("old of edit %d of %d", i+1, of)
	}
	switch {
	case got == 0:
		m.message, m.hint = where+" does not occur", closestText(content, e.Old)
		if i > 0 {
			m.message += " after the edits before it"
		}
	case overlap:
		m.message = where + " has occurrences that overlap"
		m.hint = "add surrounding text to old until it is unambiguous"
	default:
		m.message = fmt.Sprintf("%s occurs %s, not %s (in lines %s)", where, times(got), times(want),
			linesOf(content, e.Old))
		m.hint = fmt.Sprintf("add surrounding text to old, or set count to %d to replace all", got)
	}
	return m
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// linesOf returns the numbers of the first lines in which old occurs.
func linesOf(content []byte, old string) string {
	const most = 10
	var lines []string
	for at := 0; ; at++ {
		i := bytes.Index(content[at:], []byte(old))
		if i < 0 {
			return strings.Join(lines, ", ")
		}
		if len(lines) == most {
			return strings.Join(lines, ", ") + ", ..."
		}
		at += i
		lines = append(lines, strconv.Itoa(1+bytes.Count(content[:at], newline)))
	}
}

// closestText returns a hint about the text that is most similar to one that does not occur: the
// same with other white space, or with the same first line.
func closestText(content []byte, old string) string {
	if bytes.Contains(bytes.ReplaceAll(content, []byte("\r\n"), newline),
		[]byte(strings.ReplaceAll(old, "\r\n", "\n"))) {
		return `only the line endings differ: one of the file and old has \r\n, the other \n`
	}
	if line := findIgnoringSpace(content, old); line > 0 {
		return fmt.Sprintf("line %d differs from old only in white space: copy it byte for byte", line)
	}
	for first := range strings.Lines(old) {
		first = strings.TrimSpace(first)
		if first == "" {
			continue
		}
		if i := bytes.Index(content, []byte(first)); i >= 0 {
			return fmt.Sprintf("the first line of old occurs in line %d, and the text after it differs: "+
				"read the file again", 1+bytes.Count(content[:i], newline))
		}
		break
	}
	return ""
}

// findIgnoringSpace returns the line in which old begins if every run of white space counts as one
// space, or zero if it does not occur.
func findIgnoringSpace(content []byte, old string) int {
	wanted := strings.Join(strings.Fields(old), " ")
	text := strings.Join(strings.Fields(string(content)), " ")
	at := strings.Index(text, wanted)
	if wanted == "" || at < 0 {
		return 0
	}
	line, words := 0, strings.Count(text[:at], " ") // words before the one in which old begins
	for text := range bytes.Lines(content) {
		line++
		if words -= len(bytes.Fields(text)); words < 0 {
			break
		}
	}
	return line
}
