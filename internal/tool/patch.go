package tool

import (
	"bytes"
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
	// line is where its old lines begin by its own account, from 1 on; for one without old lines it is
	// the line that it stands behind.
	line     int
	old, new []string // with their line ends
}

// parsePatch reads a unified diff of one file's text. What it calls the file does not matter, and
// it need not name it. Errors are sentences about "it".
func parsePatch(text string) ([]hunk, error) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // what has no line end says so
	}
	if strings.HasPrefix(text, "@@ ") {
		text = "--- file\n+++ file\n" + text
	}
	files, _, err := gitdiff.Parse(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("it is no unified diff: %s", strings.TrimPrefix(err.Error(), "gitdiff: "))
	}
	switch {
	case len(files) > 1:
		return nil, fmt.Errorf("it changes %d files: give each its own call", len(files))
	case len(files) == 0 || len(files[0].TextFragments) == 0 && !files[0].IsBinary &&
		!files[0].IsRename:
		return nil, errors.New("it has no hunks: they begin with a line like @@ -1,3 +1,4 @@")
	}
	f := files[0]
	if f.IsBinary || f.IsNew || f.IsDelete || f.IsRename || f.IsCopy || f.NewMode != 0 &&
		f.NewMode != f.OldMode {
		return nil, errors.New("it does more than change lines: write_file makes files, exec and shell move and remove them")
	}
	hunks := make([]hunk, 0, len(f.TextFragments))
	for i, fragment := range f.TextFragments {
		h := hunk{number: i + 1, line: int(fragment.OldPosition)}
		for _, l := range fragment.Lines {
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

// applyPatch replaces the old lines of each hunk by its new ones. The old lines have to stand there
// byte for byte, at the hunk's own line moved as far as the hunk before was, else in one single
// place behind that one. The end of the call ends it.
func applyPatch(ctx context.Context, content []byte, hunks []hunk) ([]byte, error) {
	lines := slices.Collect(splitLines(content))
	var out []byte
	done, moved := 0, 0 // lines that are written; how far the hunk before stood from its own line
	for _, h := range hunks {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		at, err := h.find(lines, done, moved, len(hunks))
		if err != nil {
			return nil, err
		}
		moved = at - h.index()
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

func splitLines(content []byte) func(func(string) bool) {
	return strings.Lines(string(content))
}

// index is where the hunk wants to be, counted from 0.
func (h hunk) index() int {
	if len(h.old) == 0 {
		return h.line
	}
	return h.line - 1
}

// find gives the index of the first old line.
func (h hunk) find(lines []string, from, moved, of int) (int, error) {
	wanted := h.index() + moved
	if h.matchesAt(lines, from, wanted) {
		return wanted, nil
	}
	first, places := h.countMatches(lines[from:])
	if places == 1 {
		return from + first, nil
	}
	return 0, h.mismatch(lines, from, from+first, places, of)
}

// countMatches counts where the old lines stand in some lines, and gives the first. No line is
// compared more than twice, however much of the old lines repeats itself (Knuth, Morris, Pratt).
func (h hunk) countMatches(lines []string) (first, count int) {
	if len(h.old) == 0 {
		return 0, 0
	}
	borders := prefixTable(h.old)
	matched := 0
	for i, l := range lines {
		for matched > 0 && (matched == len(h.old) || h.old[matched] != l) {
			matched = borders[matched-1]
		}
		if h.old[matched] == l {
			matched++
		}
		if matched < len(h.old) {
			continue
		}
		if count++; count == 1 {
			first = i + 1 - matched
		}
	}
	return first, count
}

// prefixTable gives for each beginning of some lines how many lines it begins and ends with alike,
// itself aside.
func prefixTable(lines []string) []int {
	borders := make([]int, len(lines))
	for i := 1; i < len(lines); i++ {
		n := borders[i-1]
		for n > 0 && lines[n] != lines[i] {
			n = borders[n-1]
		}
		if lines[n] == lines[i] {
			n++
		}
		borders[i] = n
	}
	return borders
}

func (h hunk) matchesAt(lines []string, from, at int) bool {
	return at >= from && at <= len(lines) && at+len(h.old) <= len(lines) &&
		slices.Equal(lines[at:at+len(h.old)], h.old)
}

func (h hunk) mismatch(lines []string, from, first, places, of int) error {
	m := &mismatchError{pointer: "/input/patch"}
	switch {
	case len(h.old) == 0:
		m.message = fmt.Sprintf("hunk %d of %d has no line that says where it belongs, and there is no line %d", h.number, of, h.line)
		m.hint = "give it lines of context"
	case places > 1:
		m.message = fmt.Sprintf("what hunk %d of %d replaces is not in line %d, and stands in %d other places, from line %d on", h.number, of, h.line, places, first+1)
		m.hint = "give the hunk its right line, or more lines of context"
	default:
		m.message = fmt.Sprintf("what hunk %d of %d replaces, near line %d, is not in the file", h.number,
			of, h.line)
		if from > 0 {
			m.message += " behind the hunk before it"
		}
		m.hint = closestText([]byte(strings.Join(lines, "")), strings.Join(h.old, ""))
		if bytes.Contains([]byte(strings.Join(lines, "")), []byte(strings.Join(h.old, ""))) {
			m.hint = "hunks have to stand in the order of the file and may not overlap"
		}
	}
	return m
}
