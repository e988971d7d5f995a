package pathmapper

import (
	"encoding/binary"
	"math/bits"
)

// These functions read JSON tokens in the same pass as the mapping. They accept what jsontext
// accepts with duplicate names and invalid UTF-8; a fuzz target compares the two.

// Constants for eight bytes at once.
const (
	swarOnes     = 0x0101010101010101
	swarHighBits = 0x80 * swarOnes
)

// stringEnd returns the index of the quote that ends the string whose text begins at i, or -1.
// plain reports whether the text is ASCII without an escape.
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

// markSpecialBytes sets the high bit of each quote, backslash and control character. Bytes after
// the first one may be marked too.
func markSpecialBytes(word uint64) uint64 {
	quote, backslash := word^'"'*swarOnes, word^'\\'*swarOnes
	control := (word - ' '*swarOnes) & ^word
	return ((quote-swarOnes) & ^quote | (backslash-swarOnes) & ^backslash | control) & swarHighBits
}

// escapeLen returns the length of the escape at the beginning of s, or 0.
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

// scalarEnd returns the end of the number or literal at i, or -1.
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

// digitsEnd returns the end of one or more digits at i, or -1.
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
