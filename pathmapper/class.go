package pathmapper

import "strings"

// byteClass says what a byte is to a reader of text; a byte may be several things.
type byteClass uint8

const (
	// The space is counted to the control bytes.
	controlByte byteClass = 1 << iota
	// Name bytes are usual in names; others are possible there. Some of them are letters and digits.
	nameByte
	alphanumeric
	quoteByte
	// Openers and separators may stand directly before a path. A path ends where one of them is directly followed by the next.
	opener
	separator
	// Closers end something, so what follows directly is not the beginning of a quotation.
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
