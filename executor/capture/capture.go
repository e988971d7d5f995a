// Package capture stores the output of tools: the first bytes of each stream in a file, a summary
// with head and tail, and exact totals, in constant memory.
//
// A [Store] is the directory of the files. Retention removes captures of ended calls by age, and
// the oldest first if all together are too large. It ignores other files in the directory, such as
// those of the audit log.
package capture

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// memoryLimit is the number of bytes that are buffered before a file is created. Most calls print
// less and need one write, or no file.
const memoryLimit = 64 << 10

// Capture captures one stream. The totals are exact even if the disk fails; Err says why bytes are
// missing. It is safe for concurrent use.
type Capture struct {
	owner *Store
	id    string
	name  string // of the file

	mu     sync.Mutex
	total  int64 // bytes that the tool wrote
	length int64 // bytes after redaction
	kept   int64
	sum    hash.Hash
	memory []byte // the captured bytes until there is a file
	file   *os.File
	size   int64 // of the file
	head   []byte
	tail   ring
	marks  marks
	err    error
	closed bool
	// requireFile is set if the record does not contain the text.
	requireFile bool
}

// Write always accepts all bytes. An error means that the stream cannot be captured up to the
// limit; it is the error of Err.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	return len(p), c.write(p)
}

// WriteMark implements [dray.RedactedWriter]: the mark is captured, and the totals count what it
// replaces.
func (c *Capture) WriteMark(mark []byte, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += size
	viewed := int64(c.owner.opts.SummaryBytes)
	c.marks.add(c.length, len(mark), size, viewed, c.length-viewed)
	return c.write(mark)
}

func (c *Capture) write(p []byte) error {
	c.length += int64(len(p))
	if space := c.owner.opts.Limit - c.kept; space > 0 && c.err == nil {
		c.keep(p[:min(int64(len(p)), space)])
	}
	rest := p
	if space := c.owner.opts.SummaryBytes - len(c.head); space > 0 {
		n := min(len(p), space)
		c.head = append(c.head, p[:n]...)
		rest = p[n:]
	}
	c.tail.write(rest)
	return c.err
}

func (c *Capture) keep(p []byte) {
	if c.file == nil && len(c.memory)+len(p) <= memoryLimit {
		c.memory = append(c.memory, p...)
		c.count(p)
		return
	}
	if c.spill() {
		c.count(p[:c.append(p)])
	}
}

func (c *Capture) count(p []byte) {
	c.sum.Write(p)
	c.kept += int64(len(p))
}

// spill writes the buffered bytes to a file and reports whether that succeeded.
func (c *Capture) spill() bool {
	if c.file != nil {
		return true
	}
	memory := c.memory
	n := 0
	file, err := os.OpenFile(c.path(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		c.fail(err)
	} else {
		c.file = file
		n = c.append(memory)
	}
	c.memory = nil
	if n == len(memory) {
		return true
	}
	c.kept = 0
	c.sum.Reset()
	c.count(memory[:n])
	return false
}

// append writes to the file and returns the number of bytes written.
func (c *Capture) append(p []byte) int {
	if err := c.owner.reserve(int64(len(p))); err != nil {
		c.err = err
		return 0
	}
	n, err := c.file.Write(p)
	c.size += int64(n)
	c.owner.unreserve(int64(len(p) - n))
	if err != nil {
		c.fail(err)
	}
	return n
}

func (c *Capture) fail(err error) {
	code, hint := dray.CodeInternal, "check the directory captures in the state directory"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code, hint = dray.CodeDiskFull, "free space on the disk of the state directory, or lower "+
			"limits.captures_disk"
	}
	c.err = dray.Errorf(code, "capture output: %w", err).WithHint("%s", hint)
}

// Err returns why the stream could not be captured up to the limit; nil if it could.
func (c *Capture) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// RequireFile makes Close create a file also for a short text, because the record does not contain
// it.
func (c *Capture) RequireFile() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requireFile = true
}

// Close writes buffered bytes to the file. The capture can be read and summarized afterwards, and
// the file stays until Release.
func (c *Capture) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.err
	}
	c.closed = true
	if len(c.memory) > 0 && c.err == nil && !c.fitsInSummary() {
		c.spill()
	}
	if c.file == nil {
		return c.err
	}
	if err := c.file.Close(); err != nil && c.err == nil {
		c.fail(err)
	}
	if c.size == 0 {
		_ = os.Remove(c.path()) // it is empty
	}
	return c.err
}

// Release makes the capture subject to retention. It must be called once, after Close.
func (c *Capture) Release() { c.owner.release(c) }

// fitsInSummary reports whether the text of Summary is exactly the captured bytes. The record
// contains it then, and a file would cost more than the rest of the capture.
func (c *Capture) fitsInSummary() bool {
	return !c.requireFile && c.kept == c.length && c.length == int64(len(c.head)+len(c.tail.buf)) &&
		utf8.Valid(c.memory)
}

// Open returns a reader of the captured bytes from the start. More may follow until Close.
func (c *Capture) Open() io.ReadSeekCloser { return &reader{capture: c} }

func (c *Capture) path() string { return filepath.Join(c.owner.opts.Dir, c.name) }

// Summary returns the summary for results.
func (c *Capture) Summary() dray.StreamSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	head, tail := c.head, c.tail.bytes()
	whole := c.length == int64(len(head)+len(tail))
	if !whole {
		head, tail = cutEnd(head), cutStart(tail)
	}
	headBytes := c.marks.written(int64(len(head)), whole)
	omitted := c.marks.written(c.length-int64(len(tail)), true) - headBytes
	return dray.StreamSummary{
		Text: text(head, tail, omitted, c.id), HeadBytes: headBytes,
		TailBytes: c.total - headBytes - omitted, OmittedBytes: omitted, TotalBytes: c.total,
		KeptBytes: c.kept, Truncated: c.kept < c.length, SHA256: hex.EncodeToString(c.sum.Sum(nil)),
	}
}

// Tail returns at most n bytes from the end, and at most SummaryBytes if the start was dropped. It
// starts with a complete character.
func (c *Capture) Tail(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := append(bytes.Clone(c.head), c.tail.bytes()...)
	if c.length > int64(len(b)) {
		b = c.tail.bytes()
	}
	b = b[max(0, len(b)-n):]
	if c.length > int64(len(b)) {
		b = cutStart(b)
	}
	return b
}

// reader reads a capture that may grow. It returns io.EOF at the current end; a later Read may
// return more.
type reader struct {
	capture *Capture
	at      int64
	file    *os.File // nil until a Read needs it
}

// Read returns the next captured bytes. It copies them without a lock: memory and file only grow.
func (r *reader) Read(p []byte) (n int, err error) {
	r.capture.mu.Lock()
	kept, memory := r.capture.kept, r.capture.memory
	r.capture.mu.Unlock()
	switch {
	case r.at >= kept:
		return 0, io.EOF
	case memory != nil:
		n = copy(p, memory[r.at:])
	default:
		n, err = r.inFile(p)
	}
	r.at += int64(n)
	return n, err
}

func (r *reader) inFile(p []byte) (int, error) {
	if r.file == nil {
		f, err := os.Open(r.capture.path())
		if err != nil {
			return 0, err
		}
		r.file = f
	}
	n, err := r.file.ReadAt(p, r.at)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Seek sets the offset of the next Read. io.SeekEnd is the current end.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		r.capture.mu.Lock()
		offset += r.capture.kept
		r.capture.mu.Unlock()
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of a capture")
	}
	r.at = offset
	return offset, nil
}

// Close closes the reader.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// text returns head and tail as valid UTF-8, with a line for the omitted bytes.
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

// cutEnd drops an incomplete character at the end of b. It keeps other invalid bytes.
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

// cutStart drops the rest of a character at the start of b.
func cutStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// ring has the last bytes of a stream.
type ring struct {
	size int
	buf  []byte
	next int // index of the oldest byte, if buf is full
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
