package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// hunk is one piece of a patch.
type hunk struct {
	number int
	// line is the line of the first old line as the hunk states it, from 1. For a hunk without old
	// lines it is the line after which the new lines are inserted.
	line     int
	old, new []string // with their line ends
}

// parsePatch parses a unified diff of one text file. The file names in it are ignored and need not
// be there. The errors are phrases about the patch, without a subject.
func parsePatch(text string) ([]hunk, error) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // a last line without a line ending is marked in the patch
	}
	if strings.HasPrefix(text, "@@ ") {
		text = "--- file\n+++ file\n" + text
	}
	files, _, err := gitdiff.Parse(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("not a unified diff: %s", strings.TrimPrefix(err.Error(), "gitdiff: "))
	}
	switch {
	case len(files) > 1:
		return nil, fmt.Errorf("changes %d files: use one call for each", len(files))
	case len(files) == 0 || len(files[0].TextFragments) == 0 && !files[0].IsBinary &&
		!files[0].IsRename:
		return nil, errors.New("has no hunks: a hunk begins with a line such as @@ -1,3 +1,4 @@")
	}
	f := files[0]
	if f.IsBinary || f.IsNew || f.IsDelete || f.IsRename || f.IsCopy || f.NewMode != 0 &&
		f.NewMode != f.OldMode {
		return nil, errors.New("does more than change lines: create files with write_file, " +
			"move and remove them with exec or shell")
	}
	hunks := make([]hunk, 0, len(f.TextFragments))
	for i, fragment := range f.TextFragments {
		h := hunk{number: i + 1, line: int(fragment.OldPosition)}
		for _, l := range fragment.Lines {
			if l.Line == "" { // no file has such a line
				return nil, fmt.Errorf("has a line in hunk %d without text and without a line ending", h.number)
			}
			if l.Old() {
				h.old = append(h.old, l.Line)
			}
			if l.New() {
				h.new = append(h.new, l.Line)
			}
		}
		hunks = append(hunks, h)
	}
	return hunks, nil
}

// applyPatch replaces the old lines of each hunk by its new lines. The old lines must match byte
// for byte: at the line of the hunk, shifted as far as the previous hunk was, else at exactly one
// place after that hunk. It fails with the cause of ctx when ctx ends.
func applyPatch(ctx context.Context, content []byte, hunks []hunk) ([]byte, error) {
	lines := slices.Collect(strings.Lines(string(content)))
	var out []byte
	done, shift := 0, 0 // lines written; distance of the previous hunk from its stated line
	for _, h := range hunks {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		at, err := h.find(lines, done, shift, len(hunks))
		if err != nil {
			return nil, err
		}
		shift = at - h.index()
		for _, l := range lines[done:at] {
			out = append(out, l...)
		}
		for _, l := range h.new {
			out = append(out, l...)
		}
		done = at + len(h.old)
	}
	for _, l := range lines[done:] {
		out = append(out, l...)
	}
	return out, nil
}

// index returns the stated position of the hunk, from 0.
func (h hunk) index() int {
	if len(h.old) == 0 {
		return h.line
	}
	return h.line - 1
}

func (h hunk) find(lines []string, from, shift, of int) (int, error) {
	wanted := h.index() + shift
	if h.matchesAt(lines, from, wanted) {
		return wanted, nil
	}
	first, again := h.search(lines[from:])
	if first >= 0 && !again {
		return from + first, nil
	}
	return 0, h.mismatch(lines, from, from+first, again, of)
}

// search returns the index of the line at which the old lines first match, or -1, and whether they
// match again after it.
func (h hunk) search(lines []string) (first int, again bool) {
	text, old := "\n"+strings.Join(lines, ""), "\n"+strings.Join(h.old, "")
	at := strings.Index(text, old)
	if !strings.HasSuffix(old, "\n") { // only the last line of a file has no line ending
		if at = len(text) - len(old); !strings.HasSuffix(text, old) {
			at = -1
		}
	}
	if at < 0 || len(h.old) == 0 {
		return -1, false
	}
	return strings.Count(text[:at], "\n"), strings.Contains(text[at+1:], old)
}

func (h hunk) matchesAt(lines []string, from, at int) bool {
	return at >= from && at <= len(lines) && at+len(h.old) <= len(lines) &&
		slices.Equal(lines[at:at+len(h.old)], h.old)
}

func (h hunk) mismatch(lines []string, from, first int, again bool, of int) error {
	m := &mismatchError{pointer: "/input/patch"}
	switch {
	case len(h.old) == 0:
		m.message = fmt.Sprintf("hunk %d of %d has no context lines, and the file has no line %d",
			h.number, of, h.line)
		m.hint = "add lines of context to the hunk"
	case again:
		m.message = fmt.Sprintf("the old lines of hunk %d of %d are not at line %d; "+
			"they occur more than once, first at line %d", h.number, of, h.line, first+1)
		m.hint = "correct the line number of the hunk, or add lines of context"
	default:
		m.message = fmt.Sprintf("the old lines of hunk %d of %d, near line %d, are not in the file",
			h.number, of, h.line)
		if from > 0 {
			m.message += " after the previous hunk"
		}
		content, old := strings.Join(lines, ""), strings.Join(h.old, "")
		m.hint = closestText([]byte(content), old)
		if strings.Contains(content, old) {
			m.hint = "put the hunks in the order of the file, without overlaps"
		}
	}
	return m
}
