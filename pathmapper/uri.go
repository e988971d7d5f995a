package pathmapper

import (
	"net/url"
	"strings"

	"github.com/dray-dev/dray"
)

// fileScheme begins a file URI (RFC 8089), in any case.
const fileScheme = "file:"

func isFileURI(s string) bool {
	return len(s) >= len(fileScheme) && strings.EqualFold(s[:len(fileScheme)], fileScheme)
}

// uri maps the path of a file URI: "file:///p", "file://localhost/p" or "file:/p". Scheme, authority, query and fragment stay as they
// are; the path is decoded, mapped and encoded again.
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
		return "", PathResult{}, dray.Errorf(dray.CodePathInvalid, "decode file URI %s: %w", quote(encoded), err).
			WithHint("write %% as %%25")
	}
	if drive, ok := strings.CutPrefix(p, "/"); ok && isWindows(drive) {
		return "", PathResult{}, invalidPathError(drive)
	}
	t, err := w.translate(p)
	return p, t, err
}

// encodePath escapes what RFC 3986 does not allow in a path as it is.
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
