package capture

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// text is head and tail as people and models read them: UTF-8 whatever the bytes and the locale, with a line for what lies between.
func text(head, tail []byte, omitted int64, id string) string {
	var b bytes.Buffer
	b.Write(head)
	if omitted > 0 {
		if len(head) > 0 && head[len(head)-1] != '\n' {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[... %d bytes omitted, read them with id %s ... ]\n", omitted, id)
	}
	b.Write(tail)
	return string(bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")))
}

// cutEnd drops a character that is cut at the end of b; bytes that are no character at all stay.
func cutEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

// cutStart drops the rest of a character that is cut at the start of b.
func cutStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// ring holds the last bytes of a stream.
type ring struct {
	size int
	buf  []byte
	next int // where the oldest byte is, once buf is full
}

func (r *ring) write(p []byte) {
	if len(p) >= r.size {
		r.buf = append(r.buf[:0], p[len(p)-r.size:]...)
		r.next = 0
		return
	}
	n := min(len(p), r.size-len(r.buf))
	r.buf = append(r.buf, p[:n]...)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(r.buf[r.next:], p)
		r.next = (r.next + n) % r.size
	}
}

func (r *ring) bytes() []byte {
	return append(append([]byte(nil), r.buf[r.next:]...), r.buf[:r.next]...)
}
