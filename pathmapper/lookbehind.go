package pathmapper

import (
	"bytes"
	"slices"
	"strings"
)

// lookbehind is the text before a position, at most lookbehindBytes; whole reports whether it is
// all of it.
type lookbehind struct {
	b     []byte
	whole bool
}

// cut removes the last n bytes.
func (b lookbehind) cut(n int) lookbehind { return lookbehind{b.b[:len(b.b)-n], b.whole} }

// last returns the last visible byte, or 0 if there is none.
func (b lookbehind) last() byte {
	b = b.withoutStyle()
	if len(b.b) == 0 {
		return 0
	}
	return b.b[len(b.b)-1]
}

func (b lookbehind) ends(suffix string) bool { return bytes.HasSuffix(b.b, []byte(suffix)) }

// notation returns the style of a path whose slash follows, and the text before the path.
func (b lookbehind) notation() (lookbehind, slashStyle) {
	const scheme = len(fileScheme)
	switch {
	case b.ends(`\`) && !b.ends("\x1b\\"):
		return b.cut(1), escapedSlash
	case len(b.b) >= scheme && isFileURI(string(b.b[len(b.b)-scheme:])):
		return b.cut(scheme), percentEncoded
	}
	return b, plain
}

// mayNeedMore returns needMore if a path may begin here.
func (b lookbehind) mayNeedMore() decision {
	if b.canStartPath() {
		return needMore
	}
	return no
}

// canStartPath reports whether a path may begin here instead of continuing the text before.
func (b lookbehind) canStartPath() bool {
	if b.ends("\x1b\\") { // the end of a terminal string such as a hyperlink
		return true
	}
	// it moves the cursor, so no visible text is directly before
	if _, final, ok := b.sequence(); ok && !isStyle(final) {
		return true
	}
	b = b.withoutStyle()
	if len(b.b) == 0 {
		return b.whole
	}
	if b.endsInQuotationMark() {
		return true
	}
	c := b.b[len(b.b)-1]
	b = b.cut(1)
	switch {
	case c == ' ':
		return !b.endsInMethod()
	case hasClass(c, controlByte|angle):
		return true
	case hasClass(c, quoteByte):
		return b.opensQuote()
	case hasClass(c, opener|separator):
		word := b.word()
		return !isInURL(word) && (c != ':' || !endsInHost(word))
	case isLetter(c):
		return isOneOf(c, "nrt") && b.ends(`\`) || b.inShortOption()
	case c == '+', c == '-': // a line of a diff
		b = b.withoutStyle()
		return len(b.b) == 0 && b.whole || b.ends("\n")
	}
	return false
}

// opensQuote reports whether a quote opens here. It closes if a word is directly before it, except
// for the prefix letters of literals (b'/x'). Text without spaces, such as Chinese, has opening
// quotes directly after letters.
func (b lookbehind) opensQuote() bool {
	b = b.withoutStyle()
	for range 2 {
		if l := len(b.b); l > 0 && isOneOf(b.b[l-1], "bBfFLrRuU") {
			b = b.cut(1)
		}
	}
	b = b.withoutStyle()
	return len(b.b) == 0 || !hasClass(b.b[len(b.b)-1], closer)
}

// endsInQuotationMark reports whether the text ends in an opening non-ASCII quotation mark.
func (b lookbehind) endsInQuotationMark() bool { return b.ends("‘") || b.ends("“") || b.ends("«") }

// inShortOption reports whether the text ends in the dash of an option of one letter, as in
// -I/usr/include.
func (b lookbehind) inShortOption() bool {
	if !b.ends("-") {
		return false
	}
	b = b.cut(1)
	if len(b.b) == 0 {
		return b.whole
	}
	c := b.b[len(b.b)-1]
	return hasClass(c, controlByte|quoteByte|opener|separator)
}

// endsInMethod reports whether an HTTP request line continues here. Its path is not a file.
func (b lookbehind) endsInMethod() bool {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}
	for _, method := range methods {
		if b.ends(method) {
			b = b.cut(len(method))
			return len(b.b) == 0 || !hasClass(b.b[len(b.b)-1], nameByte)
		}
	}
	return false
}

// word returns the text after the last white space, quote, < or >.
func (b lookbehind) word() []byte {
	i := len(b.b)
	for i > 0 && !hasClass(b.b[i-1], controlByte|quoteByte|angle) {
		i--
	}
	return b.b[i:]
}

// isInURL reports whether a URL with a scheme other than file continues after a word.
func isInURL(word []byte) bool {
	for {
		i := bytes.Index(word, []byte("://"))
		if i < 0 {
			return false
		}
		if i < 4 || !isFileURI(string(word[i-4:i+1])) || i > 4 && isSchemeByte(word[i-5]) {
			return true
		}
		word = word[i+3:]
	}
}

func isSchemeByte(c byte) bool { return hasClass(c, alphanumeric) || isOneOf(c, "+-.") }

// endsInHost reports whether a word before a colon ends in the user and host of another machine, as
// in me@host:/srv, or in a Windows drive.
func endsInHost(word []byte) bool {
	for i, c := range slices.Backward(word) {
		if hasClass(c, opener|separator) {
			word = word[i+1:]
			break
		}
	}
	if len(word) == 1 && isLetter(word[0]) {
		return true
	}
	return bytes.IndexByte(word, '@') >= 0 && bytes.IndexByte(word, '/') < 0
}

// maxSequence is the maximum length of a control sequence.
const maxSequence = 32

// isStyle reports whether a control sequence with that last byte changes the style of text, or
// erases the text after it, as grep does. The text around it is adjacent.
func isStyle(final byte) bool { return final == 'm' || final == 'K' }

// sequence returns the terminal control sequence (ESC [ ... letter) at the end of the text.
func (b lookbehind) sequence() (start int, final byte, ok bool) {
	from := max(0, len(b.b)-maxSequence)
	start = bytes.LastIndexByte(b.b[from:], '\x1b')
	if start < 0 {
		return 0, 0, false
	}
	start += from
	n, final, v := lookahead{b.b[start:], true}.controlSequence()
	return start, final, v == yes && start+n == len(b.b)
}

func (b lookbehind) withoutStyle() lookbehind {
	for {
		start, final, ok := b.sequence()
		if !ok || !isStyle(final) {
			return b
		}
		b = lookbehind{b.b[:start], b.whole}
	}
}

// byteClass is a set of roles of a byte in text.
type byteClass uint8

const (
	// controlByte includes the space.
	controlByte byteClass = 1 << iota
	// nameByte is usual in names; other bytes are possible there.
	nameByte
	alphanumeric
	quoteByte
	// opener and separator may be directly before a path. A path ends before one of them that another
	// path follows.
	opener
	separator
	// closer ends something, so that a quote directly after it does not open.
	closer
	angle
)

var classes = classify()

func classify() (all [256]byteClass) {
	mark := func(c byteClass, bytes string) {
		for i := range len(bytes) {
			all[bytes[i]] |= c
		}
	}
	for c := range len(all) {
		switch {
		case c <= ' ' || c == 0x7f:
			all[c] = controlByte
		case c >= 0x80:
			all[c] = nameByte
		case isLetter(byte(c)) || '0' <= c && c <= '9':
			all[c] = nameByte | alphanumeric | closer
		}
	}
	mark(nameByte|closer, "_-.")
	mark(closer, ")]}")
	mark(quoteByte, "\"'`")
	mark(opener, "([{|")
	mark(separator, ":,;=")
	mark(angle, "<>")
	return all
}

func hasClass(c byte, of byteClass) bool { return classes[c]&of != 0 }

func isOneOf(c byte, set string) bool { return strings.IndexByte(set, c) >= 0 }
