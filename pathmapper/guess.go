package pathmapper

import (
	"slices"
	"strings"
	"unicode"
)

// guessPath decides by the look of a whole string that begins with a slash. It must not take prose for a path: a path that is left
// alone fails where it is used, and the report says why, but a wrongly changed text goes unnoticed.
func (w *documentWalker) guessPath(s string, notUnicode error) string {
	if reason := w.declineReason(s, notUnicode); reason != "" {
		w.unmapped(s, reason)
		return s
	}
	// Whatever is left is a path, so ".." and NUL are errors from here on.
	t, err := w.translate(s)
	return w.record(s, t.withTail(s), t, err)
}

// declineReason gives the reason why a string is not taken for a path; none for one that is, or that must be refused as one.
func (w *documentWalker) declineReason(s string, notUnicode error) string {
	has := featuresOf(s)
	switch {
	case notUnicode != nil:
		return "it is not Unicode"
	case strings.HasPrefix(s, "//"):
		return "it begins with //"
	case has&query != 0:
		return "it holds ? or #"
	case has&colon != 0 && strings.Contains(s, "://"):
		return "it holds ://"
	case !w.mapper.looksMapped(w.dir, s):
		return w.mapper.unmappedReason(w.dir, clean(s))
	case has&nul != 0:
		return ""
	case has&control != 0:
		return "it holds control characters"
	case has&space != 0 && !w.existsOnHost(s):
		return "it holds white space, and no such path exists"
	}
	return ""
}

// charFeatures are what the heuristic asks of a string's characters.
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

// existsOnHost asks for the host's name of s. With ".." in it s is prose, or as good as.
func (w *documentWalker) existsOnHost(s string) bool {
	t, err := w.mapper.translate(w.dir, s)
	if err != nil || !t.Mapped || w.opts.HostExists == nil {
		return false
	}
	if w.dir == ToHost {
		return w.opts.HostExists(t.Path)
	}
	return w.opts.HostExists(clean(s))
}

// looksMapped says whether p lies under a root of its side. With ".." in it, it is enough that it passes one or leads beneath one: such a
// path is meant for the other side, and is refused there.
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
