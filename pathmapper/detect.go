package pathmapper

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/dray-dev/dray"
)

// guessPath applies the heuristic to a string that begins with a slash. It must not change prose:
// an unmapped path fails where it is used and is reported, but a wrongly changed text goes
// unnoticed.
func (w *documentWalker) guessPath(s string, notUnicode error) string {
	if reason := w.declineReason(s, notUnicode); reason != "" {
		w.unmapped(s, reason)
		return s
	}
	// The string is a path: ".." and NUL are errors.
	t, err := w.translate(s)
	return w.record(s, t.withTail(s), t, err)
}

// declineReason returns why a string is not a path, or "" if it is one, valid or not.
func (w *documentWalker) declineReason(s string, notUnicode error) string {
	has := featuresOf(s)
	switch {
	case notUnicode != nil:
		return "it is not Unicode"
	case strings.HasPrefix(s, "//"):
		return "it begins with //"
	case has&query != 0:
		return "it contains ? or #"
	case has&colon != 0 && strings.Contains(s, "://"):
		return "it contains ://"
	case !w.mapper.looksMapped(w.dir, s):
		return w.mapper.unmappedReason(w.dir, clean(s))
	case has&nul != 0:
		return ""
	case has&control != 0:
		return "it contains control characters"
	case has&space != 0 && !w.existsOnHost(s):
		return "it contains white space, and no such path exists"
	}
	return ""
}

// charFeatures are the kinds of characters that the heuristic distinguishes.
type charFeatures uint8

const (
	query charFeatures = 1 << iota
	colon
	nul
	control
	space
)

func featuresOf(s string) charFeatures {
	var has charFeatures
	for _, r := range s {
		switch {
		case r > ' ' && r < 0x7f:
			switch r {
			case '?', '#':
				has |= query
			case ':':
				has |= colon
			}
		case r == 0:
			has |= nul
		case unicode.IsControl(r):
			has |= control
		case unicode.IsSpace(r):
			has |= space
		}
	}
	return has
}

// existsOnHost reports whether the host path of s exists. With ".." it counts as prose.
func (w *documentWalker) existsOnHost(s string) bool {
	t, err := w.mapper.translate(w.dir, s)
	host := clean(s)
	if w.dir == ToHost {
		host = t.Path
	}
	return err == nil && t.Mapped && w.opts.HostExists != nil && w.opts.HostExists(host)
}

// looksMapped reports whether p is under a root of its side, before or after ".." is resolved. A
// path with ".." is then refused instead of ignored.
func (m *Mapper) looksMapped(dir Direction, p string) bool {
	if i := dotDot(p); i >= 0 && m.under(dir, clean(p[:i])) {
		return true
	}
	return m.under(dir, clean(p))
}

func (m *Mapper) under(dir Direction, p string) bool {
	if dir == ToHost {
		_, ok := m.mappingAt(p)
		return ok
	}
	return slices.ContainsFunc(m.byHost, func(mp Mapping) bool {
		_, ok := relativeTo(p, mp.Host)
		return ok
	})
}

// mapMarked maps a string that the schema marks. Alternatives of a schema may give it several
// kinds: then it is a file URI if it has that form, else a list if that is one of the kinds.
func (w *documentWalker) mapMarked(k kinds, s string, notUnicode error) string {
	switch {
	case notUnicode != nil:
		w.fault(dray.Errorf(dray.CodePathInvalid, "%s is not Unicode and cannot be a path", quote(s)).
			WithHint("rename the file: names in JSON must be UTF-8"))
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

// record adds the result of one path to the report and returns its replacement: to if it is mapped.
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

// withTail returns the new path with the trailing slash of the old one. A root gets none.
func (t PathResult) withTail(old string) string {
	switch {
	case strings.HasSuffix(old, "/."):
		return t.Path + "/."
	case strings.HasSuffix(old, "/") && !t.atRoot:
		return t.Path + "/"
	default:
		return t.Path
	}
}

// list maps each element of a colon-joined list, as in PATH. Empty elements are the working
// directory and stay. If an element is refused, the whole list stays unchanged.
func (w *documentWalker) list(s string) string {
	elements := strings.Split(s, ":")
	found := make([]PathResult, len(elements))
	for i, element := range elements {
		var err error
		if found[i], err = w.element(s, element); err != nil {
			w.fault(err)
			return s
		}
	}
	for i, t := range found {
		if element := elements[i]; element != "" {
			elements[i] = w.record(element, t.withTail(element), t, nil)
		}
	}
	return strings.Join(elements, ":")
}

func (w *documentWalker) element(list, element string) (PathResult, error) {
	if isWindows(list) && strings.Contains(list, `\`) {
		return PathResult{}, invalidPathError(list)
	}
	t, err := w.translate(element)
	if err == nil && t.Mapped && strings.Contains(t.Path, ":") {
		err = dray.Errorf(dray.CodePathInvalid,
			"%s maps to %s, whose colon is not possible in a list", quote(element), quote(t.Path)).
			WithHint("mount a directory without a colon in its path")
	}
	if err != nil {
		return PathResult{}, fmt.Errorf("element of a path list: %w", err)
	}
	return t, nil
}

// fileScheme is the scheme of a file URI (RFC 8089), in any letter case.
const fileScheme = "file:"

func isFileURI(s string) bool {
	return len(s) >= len(fileScheme) && strings.EqualFold(s[:len(fileScheme)], fileScheme)
}

// uri maps the path of a file URI: "file:///p", "file://localhost/p" or "file:/p". Scheme,
// authority, query and fragment stay unchanged; the path is decoded, mapped and encoded.
func (w *documentWalker) uri(s string) string {
	rest := s[len(fileScheme):]
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		slash := strings.IndexAny(after, "/?#")
		if slash < 0 {
			slash = len(after)
		}
		if host := after[:slash]; host != "" && !strings.EqualFold(host, "localhost") {
			w.unmapped(s, "it names a file of another host")
			return s
		}
		rest = after[slash:]
	}
	before := s[:len(s)-len(rest)]
	encoded, extra := rest, ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		encoded, extra = rest[:i], rest[i:]
	}
	p, t, err := w.decodeAndMap(encoded)
	return w.record(s, before+encodePath(t.withTail(p))+extra, t, err)
}

func (w *documentWalker) decodeAndMap(encoded string) (string, PathResult, error) {
	p, err := url.PathUnescape(encoded)
	if err != nil {
		return "", PathResult{}, dray.Errorf(dray.CodePathInvalid, "decode file URI %s: %w",
			quote(encoded), err).WithHint("write %% as %%25")
	}
	if drive, ok := strings.CutPrefix(p, "/"); ok && isWindows(drive) {
		return "", PathResult{}, invalidPathError(drive)
	}
	t, err := w.translate(p)
	return p, t, err
}

// encodePath percent-encodes the characters that RFC 3986 does not allow in a path.
func encodePath(p string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(p) {
		if c := p[i]; isPathChar(c) {
			b.WriteByte(c)
		} else {
			b.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		}
	}
	return b.String()
}

func isPathChar(c byte) bool {
	return isLetter(c) || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0
}
