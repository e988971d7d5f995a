package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dray-dev/dray/internal/lexical"
)

const (
	// minLiteral is the length in bytes of the shortest value that is searched for. Shorter ones occur
	// by chance.
	minLiteral = 6
	// minLine is the same for one line of a value.
	minLine = 16
	// maxValues and maxLiteral bound the number of values, and the bytes of all together, that are
	// searched for. maxEncoded bounds the bytes of those that are searched for in all their forms. So
	// the memory of a call is bounded.
	maxValues, maxLiteral, maxEncoded = 4096, 1 << 20, 32 << 10
)

// literals finds values. Nil finds none.
type literals struct {
	// pairs has a bit for the first two bytes of every value, and first one for the first.
	pairs [1 << 16 / 8]byte
	first [256]bool
	// byPair has the values by their first two bytes.
	byPair map[[2]byte][][]byte
}

// newLiterals returns a finder of the values that are long enough, within the maximums.
func newLiterals(values []string) *literals {
	l := &literals{byPair: map[[2]byte][][]byte{}}
	total := 0
	for _, v := range values[:min(len(values), maxValues)] {
		if len(v) < minLiteral {
			continue
		}
		v = v[:min(len(v), maxLiteral-total)]
		if total += len(v); total > maxEncoded {
			l.add([]byte(v))
			continue
		}
		for _, form := range forms(v) {
			l.add([]byte(form))
		}
	}
	if len(l.byPair) == 0 {
		return nil
	}
	return l
}

// add adds one form, in pieces that are not longer than what a stream holds back.
func (l *literals) add(form []byte) {
	for len(form) >= minLiteral {
		piece := form[:min(len(form), MaxMatch)]
		if rest := len(form) - len(piece); 0 < rest && rest < minLiteral {
			piece = form[:len(piece)-minLiteral]
		}
		form = form[len(piece):]
		key := [2]byte(piece)
		equal := func(other []byte) bool { return bytes.Equal(other, piece) }
		if slices.ContainsFunc(l.byPair[key], equal) {
			continue
		}
		l.byPair[key] = append(l.byPair[key], piece)
		l.first[key[0]] = true
		n := pairOf(key[0], key[1])
		l.pairs[n/8] |= 1 << (n % 8)
	}
}

func pairOf(a, b byte) uint { return uint(a)<<8 | uint(b) }

// find implements finder: it finds all occurrences, also those that overlap.
func (l *literals) find(t text, at int, found func(span)) int {
	b := t.bytes
	for i := at; i < len(b)-1; i++ {
		if n := pairOf(b[i], b[i+1]); l.pairs[n/8]&(1<<(n%8)) == 0 {
			continue
		}
		length, complete := l.longest(b[i:], t.final)
		if !complete {
			return i
		}
		if length > 0 {
			found(span{i, i + length})
		}
	}
	if last := len(b) - 1; !t.final && last >= at && l.first[b[last]] {
		return last
	}
	return len(b)
}

// longest returns the length of the longest value with which b begins. complete is false if b is
// only the beginning of a value.
func (l *literals) longest(b []byte, final bool) (length int, complete bool) {
	for _, v := range l.byPair[[2]byte(b)] {
		switch {
		case bytes.HasPrefix(b, v):
			length = max(length, len(v))
		case !final && bytes.HasPrefix(v, b):
			return 0, false
		}
	}
	return length, true
}

// forms returns a value as it is and as common encodings write it. Equal ones may occur twice.
func forms(v string) []string {
	query, digits := url.QueryEscape(v), hex.EncodeToString([]byte(v))
	all := []string{
		v, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(v),
		digits, strings.ToUpper(digits),
	}
	quoted := quotedForms(v)
	all = append(all, quoted...)
	for _, q := range quoted {
		all = append(all, quotedForms(q)...) // JSON in JSON
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		all = append(all, base64Forms(enc, v)...)
	}
	if strings.Contains(v, "\n") {
		all = append(all, strings.ReplaceAll(v, "\n", "\r\n")) // as a terminal writes it
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); len(line) >= minLine {
				all = append(all, line)
			}
		}
	}
	return all
}

// quotedForms returns what is between the quotes of a JSON string: with and without the escapes of
// HTML characters that Go writes, with and without those of other characters than ASCII, with
// lower-case and upper-case digits, and with and without those of slashes; and as .NET writes it.
// Equal ones occur once.
func quotedForms(v string) []string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a string can be encoded
	escaped, _ := json.Marshal(v)
	all := []string{b.String()[1 : b.Len()-2], string(escaped[1 : len(escaped)-1])}
	for _, q := range all[:2] {
		all = append(all, escapeNonASCII(q))
	}
	for _, q := range all[:4] {
		all = append(all, upperEscapes(q))
	}
	for _, q := range all[:8] {
		all = append(all, strings.ReplaceAll(q, "/", `\/`))
	}
	all = append(all, upperEscapes(dotNetEscapes.Replace(escapeNonASCII(all[0]))))
	slices.Sort(all)
	return slices.Compact(all)
}

// escapeNonASCII replaces what is not ASCII by the escapes of JSON, as Python does by default.
func escapeNonASCII(v string) string {
	var b strings.Builder
	for _, r := range v {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// jsonEscape matches an escape with digits, or two backslashes.
var jsonEscape = lexical.LazyRegexp(`\\\\|\\u[0-9a-f]{4}`)

// upperEscapes writes the digits of escapes in upper case, as .NET and Java do.
func upperEscapes(v string) string {
	return jsonEscape().ReplaceAllStringFunc(v, func(escape string) string {
		return escape[:2] + strings.ToUpper(escape[2:])
	})
}

// dotNetEscapes escapes what System.Text.Json escapes by default and JSON does not demand.
var dotNetEscapes = strings.NewReplacer(`\"`, `\u0022`, "&", `\u0026`, "'", `\u0027`, "+", `\u002b`,
	"<", `\u003c`, ">", `\u003e`, "`", `\u0060`, "\x7f", `\u007f`, `\\`, `\\`)

// base64Forms returns the characters of a base64 text that a value alone determines, for each of
// the three places of its first byte in a group of three.
func base64Forms(enc *base64.Encoding, v string) []string {
	var all []string
	for before := range 3 {
		text := enc.EncodeToString(append(make([]byte, before), v...))
		const bits = 6
		first := (8*before + bits - 1) / bits
		last := 8 * (before + len(v)) / bits
		if last-first >= minLiteral {
			all = append(all, text[first:last])
		}
	}
	return all
}
