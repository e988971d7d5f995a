// Package lexical has the functions on strings that several packages need: names, suggestions,
// truncation, paths and text for terminals. It imports only the standard library, so that every
// package may import it, config included.
package lexical

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsName reports whether s may name a tool or a container: letters, digits, '.', '_' and '-', of
// which the first is a letter or a digit (EX-02).
func IsName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}

// Truncate returns s if it has at most limit bytes, else its beginning of at most limit bytes, cut
// between two characters, and "…".
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// Rel returns the path of name relative to dir, "." for dir itself, and whether name is dir or lies
// beneath it. It compares whole segments and resolves no symlinks. Both paths must be absolute, or
// both relative to the same directory. An empty dir contains nothing.
func Rel(dir, name string) (rest string, ok bool) {
	if dir == "" || path.IsAbs(dir) != path.IsAbs(name) {
		return "", false
	}
	dir, name = path.Clean(dir), path.Clean(name)
	switch {
	case name == dir:
		return ".", true
	case dir == ".":
		rest = name
	case dir == "/":
		rest = name[1:]
	default:
		if rest, ok = strings.CutPrefix(name, dir); !ok || rest[0] != '/' {
			return "", false
		}
		rest = rest[1:]
	}
	if rest == ".." || strings.HasPrefix(rest, "../") {
		return "", false
	}
	return rest, true
}

// Contains reports whether name is dir or lies beneath it, as [Rel] does.
func Contains(dir, name string) bool {
	_, ok := Rel(dir, name)
	return ok
}

// Resolve returns the clean path that name has as seen from dir.
func Resolve(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// maxSuggested is the length in bytes of the longest name that Closest compares.
const maxSuggested = 128

// Closest returns the candidate that name is most likely a misspelling of, or "" if none is close
// enough. The edit distance between the normalized names may be a third of the length of name, or
// 1.
func Closest(name string, candidates []string) string {
	if len(name) > maxSuggested {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if d := distance(Normalize(name), Normalize(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Normalize returns a name in lower case with '_' in place of '-'.
func Normalize(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// distance returns the number of insertions, deletions, replacements and swaps of neighbours that
// turn a into b, in bytes, where no position is edited twice (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// ShellWord quotes s for a command line that somebody copies from a message, if it needs quotes.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+,:@%=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// JSONSize returns how many bytes a text has in JSON at most, without its quotes. A control
// character has six: a report of names that a container chose must be bounded by this size.
func JSONSize(text string) int {
	size := len(text)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch i += n; {
		case r == '"' || r == '\\':
			size++
		case r < ' ' || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029',
			r == utf8.RuneError && n == 1:
			size += len(`\u0000`) - n
		}
	}
	return size
}
