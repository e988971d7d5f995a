package pathmapper

import (
	"fmt"
	"strings"

	"github.com/dray-dev/dray"
)

// mapMarked maps a string that the schema calls a path. Where it is called several things, which alternatives of a schema may do, the
// string's own form decides: a file URI, else a list if it may be one.
func (w *documentWalker) mapMarked(k kinds, s string, notUnicode error) string {
	switch {
	case notUnicode != nil:
		w.fault(dray.Errorf(dray.CodePathInvalid, "%s is not Unicode, so no path can be made of it", quote(s)).
			WithHint("dray cannot carry file names that are not UTF-8 in JSON"))
		return s
	case k&fileURI != 0 && isFileURI(s):
		return w.uri(s)
	case k&pathList != 0:
		return w.list(s)
	case k&singlePath != 0:
		t, err := w.translate(s)
		return w.record(s, t.withTail(s), t, err)
	}
	w.unmapped(s, "it is not a file URI")
	return s
}

// record reports what became of one path, which is written as to if it is mapped, and gives the text to write.
func (w *documentWalker) record(s, to string, t PathResult, err error) string {
	switch {
	case err != nil:
		w.fault(err)
		return s
	case !t.Mapped:
		w.unmapped(s, t.Reason)
		return s
	}
	w.mapped(s, to)
	return to
}

// withTail gives the new path the end of the old one: see tail. The root itself gets no trailing slash.
func (t PathResult) withTail(old string) string {
	end := trailingSlash(old)
	if t.atRoot && end == "/" {
		return t.Path
	}
	return t.Path + end
}

// list maps each element of a colon-joined list, as in PATH. Empty elements mean the working folder and stay. One that is refused
// leaves the whole list as it was.
func (w *documentWalker) list(s string) string {
	elements := strings.Split(s, ":")
	to := make([]string, len(elements))
	found := make([]PathResult, len(elements))
	for i, element := range elements {
		t, err := w.element(s, element)
		if err != nil {
			w.fault(err)
			return s
		}
		found[i], to[i] = t, element
		if t.Mapped {
			to[i] = t.withTail(element)
		}
	}
	for i, t := range found {
		switch {
		case t.Mapped:
			w.mapped(elements[i], to[i])
		case elements[i] != "":
			w.unmapped(elements[i], t.Reason)
		}
	}
	return strings.Join(to, ":")
}

func (w *documentWalker) element(list, element string) (PathResult, error) {
	if isWindows(list) && strings.Contains(list, `\`) {
		return PathResult{}, invalidPathError(list)
	}
	t, err := w.translate(element)
	if err == nil && t.Mapped && strings.Contains(t.Path, ":") {
		err = dray.Errorf(dray.CodePathInvalid, "%s maps to %s, which no list can hold because of its colon", quote(element), quote(t.Path)).
			WithHint("mount a folder without a colon in its name")
	}
	if err != nil {
		return PathResult{}, fmt.Errorf("element of a path list: %w", err)
	}
	return t, nil
}
