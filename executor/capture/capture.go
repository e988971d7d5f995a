// Package capture keeps what tools print: the first bytes of each stream in a file, the head and
// the tail for people and models, exact totals for all of it, in constant memory.
//
// A [Store] is the folder of the files. Retention removes those of calls that have ended: by age,
// and the oldest first where all together take more room than they may. Other files in the folder
// (the trail has its own there) are neither counted nor removed.
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

// memoryLimit is how much of a stream is held before a file is made for it. Most calls print less,
// and get one write at their end.
const memoryLimit = 64 << 10

// Capture takes one stream. Whatever happens to the disk, the totals stay exact; Err says why no
// more is kept than there is.
type Capture struct {
	owner *Store
	id    string
	name  string // of its file

	mu     sync.Mutex
	total  int64
	kept   int64
	sum    hash.Hash
	memory []byte // the kept bytes while there is no file
	file   *os.File
	size   int64 // of the file, as it was claimed from the store
	head   []byte
	tail   ring
	err    error
	closed bool
	// requireFile says that the record does not show the capture's text, however short it is.
	requireFile bool
}

// Write takes the next bytes, all of them. An error says that what the limit allows cannot be kept
// any more; it is the same as Err's.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	if room := c.owner.opts.Limit - c.kept; room > 0 && c.err == nil {
		c.keep(p[:min(int64(len(p)), room)])
	}
	rest := p
	if room := c.owner.opts.SummaryBytes - len(c.head); room > 0 {
		n := min(len(p), room)
		c.head = append(c.head, p[:n]...)
		rest = p[n:]
	}
	c.tail.write(rest)
	return len(p), c.err
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

// spill moves what is in memory to a file, and says whether all of it arrived.
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

// append writes to the file as much as there is room for, and says how much that was.
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
	code, hint := dray.CodeInternal, "look at the folder captures in the state folder"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code, hint = dray.CodeDiskFull, "make room on the disk of the state folder, or lower limits.captures_disk"
	}
	c.err = dray.Errorf(code, "keeping what the tool prints: %w", err).WithHint("%s", hint)
}

// Err says why the stream is not kept as far as the limit allows; nil if it is.
func (c *Capture) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// RequireFile says that the record will not have the text of Summary, so that Close has to make a
// file also of little.
func (c *Capture) RequireFile() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requireFile = true
}

// Close ends the capture: what is only in memory goes to its file. The capture can still be read
// and summed up, and its file stays until Release.
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
		_ = os.Remove(c.path()) // nothing would be found in it
	}
	return c.err
}

// Release says that the call is over, and its capture subject to retention. It is called once,
// after Close.
func (c *Capture) Release() { c.owner.release(c) }

// fitsInSummary says that Summary's text is the very bytes that were printed. They are in the
// record then, and a file of their own would cost more than the rest of the capture; whoever reads
// them again takes them from there.
func (c *Capture) fitsInSummary() bool {
	return !c.requireFile && c.kept == c.total && c.total == int64(len(c.head)+len(c.tail.buf)) &&
		utf8.Valid(c.memory)
}

// Open gives the kept bytes from the beginning; more may come until Close.
func (c *Capture) Open() io.ReadSeekCloser { return &reader{capture: c} }

func (c *Capture) path() string { return filepath.Join(c.owner.opts.Dir, c.name) }

// Summary is the capture as results show it.
func (c *Capture) Summary() dray.StreamSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	head, tail := c.head, c.tail.bytes()
	if omitted := c.total - int64(len(head)+len(tail)); omitted > 0 {
		head, tail = cutEnd(head), cutStart(tail)
	}
	omitted := c.total - int64(len(head)+len(tail))
	return dray.StreamSummary{
		Text: text(head, tail, omitted,
			c.id), HeadBytes: int64(len(head)), TailBytes: int64(len(tail)), OmittedBytes: omitted,
		TotalBytes: c.total, KeptBytes: c.kept, Truncated: c.kept < c.total, SHA256: hex.EncodeToString(c.sum.Sum(nil)),
	}
}

// Tail gives the last bytes that were printed, at most n and at most a view. It begins with a whole
// character where that is known.
func (c *Capture) Tail(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := append(bytes.Clone(c.head), c.tail.bytes()...)
	if c.total > int64(len(b)) {
		b = c.tail.bytes()
	}
	b = b[max(0, len(b)-n):]
	if c.total > int64(len(b)) {
		b = cutStart(b)
	}
	return b
}

// reader reads a capture that may still grow. Its end is what is kept at that moment; reading on
// later gives more.
type reader struct {
	capture *Capture
	at      int64
	file    *os.File // nil until the capture has one and something of it is wanted
}

// Read gives what is kept behind the last byte that was read.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.inMemory(p)
	if errors.Is(err, errSpilled) {
		n, err = r.inFile(p)
	}
	r.at += int64(n)
	return n, err
}

var errSpilled = errors.New("it is in a file")

func (r *reader) inMemory(p []byte) (int, error) {
	c := r.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.at >= c.kept:
		return 0, io.EOF
	case c.memory == nil:
		return 0, errSpilled
	default:
		return copy(p, c.memory[r.at:]), nil
	}
}

// inFile reads what was written. The file is not locked meanwhile: it only grows.
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

// Seek sets where the next Read begins. The end is that of now.
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
		return 0, errors.New("seeking before the beginning of a capture")
	}
	r.at = offset
	return offset, nil
}

// Close ends the reading.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// text is head and tail as people and models read them: UTF-8 whatever the bytes and the locale,
// with a line for what lies between.
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
