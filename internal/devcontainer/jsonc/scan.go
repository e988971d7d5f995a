package jsonc

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

type kind int

const (
	endOfFile kind = iota
	openBrace
	closeBrace
	openBracket
	closeBracket
	comma
	colon
	wordNull
	wordTrue
	wordFalse
	stringToken
	numberToken
	unknown
	trivia
)

var punctuation = map[byte]kind{
	'{': openBrace, '}': closeBrace, '[': openBracket, ']': closeBracket, ',': comma, ':': colon,
}

var words = map[string]kind{"null": wordNull, "true": wordTrue, "false": wordFalse}

// scanner splits the text into tokens. It works on bytes, since the syntax is ASCII.
type scanner struct {
	src   []byte
	pos   int
	start int
	kind  kind
	text  string // the value of a string, the digits of a number
	fault string // the error in the token, if any
}

// next moves to the next token, trivia included.
func (s *scanner) next() {
	s.start, s.text, s.fault = s.pos, "", ""
	if s.pos >= len(s.src) {
		s.kind = endOfFile
		return
	}
	c := s.src[s.pos]
	if k, ok := punctuation[c]; ok {
		s.pos++
		s.kind = k
		return
	}
	switch {
	case isBlank(c) || isLineBreak(c):
		s.pos++
		s.kind = trivia
	case c == '"':
		s.pos++
		s.scanString()
	case c == '/':
		s.scanSlash()
	case isDigit(c) || c == '-' && s.pos+1 < len(s.src) && isDigit(s.src[s.pos+1]):
		s.scanNumber()
	case c == '-':
		s.pos++
		s.kind = unknown
	default:
		s.scanWord()
	}
}

// scanSlash scans a comment. An unterminated one extends to the end of the file.
func (s *scanner) scanSlash() {
	s.kind = trivia
	rest := s.src[s.pos:]
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			s.pos += i
			return
		}
		s.pos = len(s.src)
	case bytes.HasPrefix(rest, []byte("/*")):
		if i := bytes.Index(rest[2:], []byte("*/")); i >= 0 {
			s.pos += i + 4
			return
		}
		s.pos = len(s.src)
		s.fault = "the comment is not closed"
	default:
		s.pos++
		s.kind = unknown
	}
}

// scanNumber scans a number and skips an exponent without digits. A leading zero is a number of its
// own.
func (s *scanner) scanNumber() {
	s.kind = numberToken
	if s.src[s.pos] == '-' {
		s.pos++
	}
	if s.src[s.pos] == '0' {
		s.pos++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			s.fault = "the number has no digit after its point"
			s.text = string(s.src[s.start : s.pos-1])
			return
		}
	}
	end := s.pos
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() {
			end = s.pos
		} else {
			s.fault = "the number's exponent has no digits"
		}
	}
	s.text = string(s.src[s.start:end])
}

func (s *scanner) digits() bool {
	from := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	return s.pos > from
}

// peek returns the current byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// scanWord scans up to blank space, punctuation, a quote or a slash.
func (s *scanner) scanWord() {
	for s.pos < len(s.src) && !endsWord(s.src[s.pos]) {
		s.pos++
	}
	s.kind = unknown
	if k, ok := words[string(s.src[s.start:s.pos])]; ok {
		s.kind = k
	}
}

// scanString scans a string after its opening quote. A line break ends it.
func (s *scanner) scanString() {
	s.kind = stringToken
	var out units
	for {
		if s.pos >= len(s.src) || isLineBreak(s.src[s.pos]) {
			s.fault = "the string is not closed"
			break
		}
		c := s.src[s.pos]
		if c == '"' {
			s.pos++
			break
		}
		if c == '\\' {
			s.pos++
			s.scanEscape(&out)
			continue
		}
		if c < ' ' {
			s.fault = "the string holds a raw control character"
		}
		r, size := utf8.DecodeRune(s.src[s.pos:])
		s.pos += size
		out.rune(r)
	}
	s.text = out.String()
}

var escapes = map[rune]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// scanEscape scans an escape after its backslash. Unknown and short escapes are dropped.
func (s *scanner) scanEscape(out *units) {
	if s.pos >= len(s.src) {
		return // scanString reports the end
	}
	r, size := utf8.DecodeRune(s.src[s.pos:])
	s.pos += size
	if r == 'u' {
		s.scanUnicode(out)
		return
	}
	if e, ok := escapes[r]; ok {
		out.rune(e)
		return
	}
	s.fault = "the string holds an unknown escape"
	if _, low := utf16.EncodeRune(r); low != utf8.RuneError {
		out.unit(low) // the reference drops one UTF-16 code unit
	}
}

func (s *scanner) scanUnicode(out *units) {
	begin := s.pos
	for s.pos < begin+4 {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(s.peek())) {
			s.fault = "the string holds a \\u escape of fewer than four digits"
			return
		}
		s.pos++
	}
	value, _ := strconv.ParseUint(string(s.src[begin:s.pos]), 16, 16) // four hexadecimal digits
	out.unit(rune(value))
}

// units builds a string of UTF-16 code units. A surrogate without its pair is replaced.
type units struct {
	out  []byte
	high rune
}

func (u *units) unit(r rune) {
	if u.high != 0 && r >= 0xDC00 && r <= 0xDFFF {
		u.out = utf8.AppendRune(u.out, utf16.DecodeRune(u.high, r))
		u.high = 0
		return
	}
	u.flush()
	if r >= 0xD800 && r < 0xDC00 {
		u.high = r
		return
	}
	u.out = utf8.AppendRune(u.out, r) // a low surrogate becomes U+FFFD
}

func (u *units) rune(r rune) {
	u.flush()
	u.out = utf8.AppendRune(u.out, r)
}

func (u *units) flush() {
	if u.high != 0 {
		u.out = utf8.AppendRune(u.out, utf8.RuneError)
		u.high = 0
	}
}

func (u *units) String() string {
	u.flush()
	return string(u.out)
}

func isBlank(c byte) bool     { return c == ' ' || c == '\t' }
func isLineBreak(c byte) bool { return c == '\n' || c == '\r' }
func isDigit(c byte) bool     { return '0' <= c && c <= '9' }

func endsWord(c byte) bool {
	if _, ok := punctuation[c]; ok {
		return true
	}
	return isBlank(c) || isLineBreak(c) || c == '"' || c == '/'
}
