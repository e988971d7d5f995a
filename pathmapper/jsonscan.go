package pathmapper

import (
	"encoding/binary"
	"math/bits"
)

// What follows reads the tokens of a JSON document by hand. It accepts exactly what jsontext
// accepts where names may repeat and strings need not be UTF-8 (a fuzz target holds the two against
// each other), in one pass together with the mapping.

// Of eight bytes at once: each has a byte's worth in all of its bytes.
const (
	swarOnes     = 0x0101010101010101
	swarHighBits = 0x80 * swarOnes
)

// stringEnd gives the place of the quote that ends the string whose text begins at i; -1 if it is
// none. Plain says that its text is ASCII without an escape: the string itself.
func stringEnd(src []byte, i int) (end int, plain bool) {
	var beyond uint64
	plain = true
	for {
		for ; len(src)-i >= 8; i += 8 {
			word := binary.LittleEndian.Uint64(src[i:])
			if stop := markSpecialBytes(word); stop != 0 {
				first := stop & -stop
				beyond |= word & (first - 1)
				i += bits.TrailingZeros64(first) / 8
				break
			}
			beyond |= word
		}
		for i < len(src) && src[i] >= ' ' && src[i] != '"' && src[i] != '\\' {
			beyond |= uint64(src[i])
			i++
		}
		if i == len(src) || src[i] < ' ' {
			return -1, false
		}
		if src[i] == '"' {
			return i, plain && beyond&swarHighBits == 0
		}
		plain = false
		n := escapeLen(src[i:])
		if n == 0 {
			return -1, false
		}
		i += n
	}
}

// markSpecialBytes marks, by their highest bits, the bytes that end a run of plain characters:
// quotes, backslashes and control characters. What stands behind the first of them may be marked
// too.
func markSpecialBytes(word uint64) uint64 {
	quote, backslash := word^'"'*swarOnes, word^'\\'*swarOnes
	return ((quote-swarOnes) & ^quote | (backslash-swarOnes) & ^backslash | (word-' '*swarOnes) & ^word) & swarHighBits
}

// escapeLen gives the length of the escape that s begins with, 0 if it is none.
func escapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(s) >= 6 && isHex(s[2]) && isHex(s[3]) && isHex(s[4]) && isHex(s[5]) {
			return 6
		}
	}
	return 0
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scalarEnd gives the end of the number or literal at i; -1 if there is none.
func scalarEnd(src []byte, i int) int {
	switch src[i] {
	case 't':
		return literalEnd(src, i, "true")
	case 'f':
		return literalEnd(src, i, "false")
	case 'n':
		return literalEnd(src, i, "null")
	}
	return numberEnd(src, i)
}

func literalEnd(src []byte, i int, literal string) int {
	end := i + len(literal)
	if end > len(src) || string(src[i:end]) != literal {
		return -1
	}
	return end
}

func numberEnd(src []byte, i int) int {
	if src[i] == '-' {
		i++
	}
	zero := i < len(src) && src[i] == '0'
	end := digitsEnd(src, i)
	if end < 0 || zero && end > i+1 {
		return -1
	}
	if i = end; i < len(src) && src[i] == '.' {
		if i = digitsEnd(src, i+1); i < 0 {
			return -1
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		return digitsEnd(src, i)
	}
	return i
}

// digitsEnd goes past one digit or more; -1 if there is none.
func digitsEnd(src []byte, i int) int {
	start := i
	for i < len(src) && isDigit(src[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
