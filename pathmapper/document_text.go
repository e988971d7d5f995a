package pathmapper

import (
	"bytes"
	"slices"
)

// rewriteString returns a string and its replacement: a whole path, or else a text with paths. A
// path that is refused is not read as a text.
func (w *documentWalker) rewriteString(quoted []byte, plain bool, marks []*schema,
) (from, to string) {
	if len(w.opts.Texts) == 0 {
		return w.rewrite(quoted, plain, marks)
	}
	before := w.report
	from, to = w.rewrite(quoted, plain, marks)
	isPath := from != to || w.report.refused != before.refused
	if w.textOnly {
		w.report = before
	}
	if isPath || !w.inText() || plain && bytes.IndexByte(quoted, '/') < 0 {
		return from, to
	}
	text, err := unquote(quoted, plain)
	if err != nil {
		return from, to
	}
	return text, w.rewriteText(text, before)
}

// inText reports whether the current value belongs to one of Texts.
func (w *documentWalker) inText() bool {
	if len(w.steps) == 0 || w.steps[0].key == nil {
		return false
	}
	key := w.steps[0].key
	name, _ := unquote(key, bytes.IndexByte(key, '\\') < 0)
	return slices.Contains(w.opts.Texts, name)
}

// rewriteText rewrites the paths in a text. If there are any, the report is before and they: it no
// longer has why the text is not a path.
func (w *documentWalker) rewriteText(text string, before report) string {
	if w.textRoots == nil {
		w.textRoots = w.mapper.rootsOf(w.dir)
	}
	var out bytes.Buffer
	r := Rewriter{to: &out, roots: w.textRoots}
	r.list = func(from, to string) {
		if r.count == 1 {
			w.report = before
		}
		w.mapped(from, to)
	}
	_, _ = r.Write([]byte(text)) // a bytes.Buffer returns no error
	_ = r.Close()
	if r.count == 0 {
		return text
	}
	return out.String()
}
