// Package capture keeps what tools print: the first bytes of each stream in a file, the head and the tail for people and models, exact
// totals for all of it, in constant memory.
package capture

import (
	"bytes"
	"crypto/sha256"
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

// inMemory is how much of a stream is held before a file is made for it. Most calls print less, and get one write at their end.
const inMemory = 64 << 10

// Store is a folder of captures.
type Store struct {
	dir   string
	limit int64
	view  int
}

// NewStore makes the folder, 0700. Limit is how many bytes of each stream are kept, view how many of head and tail are shown.
func NewStore(dir string, limit int64, view int) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for captures: %w", err)
	}
	return &Store{dir: dir, limit: limit, view: view}, nil
}

func (s *Store) path(id string, stream dray.Stream) string {
	return filepath.Join(s.dir, id+"."+stream.String())
}

// Open gives the kept bytes of a stream, as far as they are in its file: all of them once the capture was closed. A stream that printed
// nothing, or no more than its Summary's text shows whole, has no file and is fs.ErrNotExist.
func (s *Store) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	f, err := os.Open(s.path(filepath.Base(id), stream))
	if err != nil {
		return nil, fmt.Errorf("opening a capture: %w", err)
	}
	return f, nil
}

// New begins the capture of a stream.
func (s *Store) New(id string, stream dray.Stream) *Capture {
	return &Capture{id: id, path: s.path(id, stream), limit: s.limit, view: s.view, sum: sha256.New(), tail: ring{size: s.view}}
}

// Capture takes one stream. Write never fails: what cannot be kept is counted, and Err says why.
type Capture struct {
	id    string
	path  string
	limit int64
	view  int

	mu     sync.Mutex
	total  int64
	kept   int64
	sum    hash.Hash
	memory []byte // the kept bytes while there is no file
	file   *os.File
	head   []byte
	tail   ring
	err    error
}

// Write takes the next bytes.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	if room := c.limit - c.kept; room > 0 && c.err == nil {
		c.keep(p[:min(int64(len(p)), room)])
	}
	rest := p
	if room := c.view - len(c.head); room > 0 {
		n := min(len(p), room)
		c.head = append(c.head, p[:n]...)
		rest = p[n:]
	}
	c.tail.write(rest)
	return len(p), nil
}

func (c *Capture) keep(p []byte) {
	if c.file == nil && len(c.memory)+len(p) <= inMemory {
		c.memory = append(c.memory, p...)
	} else if err := c.spill(p); err != nil {
		c.fail(err)
		return
	}
	c.sum.Write(p)
	c.kept += int64(len(p))
}

func (c *Capture) spill(p []byte) error {
	if c.file == nil {
		f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		c.file = f
		if _, err := f.Write(c.memory); err != nil {
			return err
		}
		c.memory = nil
	}
	_, err := c.file.Write(p)
	return err
}

func (c *Capture) fail(err error) {
	code := dray.CodeInternal
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code = dray.CodeDiskFull
	}
	c.err = dray.Errorf(code, "keeping the output: %w", err).WithHint("make room on the disk of the state folder")
}

// Close ends the capture: what is only in memory goes to its file. The capture can still be read and summed up.
func (c *Capture) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && len(c.memory) > 0 && c.err == nil && !c.shownWhole() {
		if err := os.WriteFile(c.path, c.memory, 0o600); err != nil {
			c.fail(err)
		}
	}
	if c.file != nil {
		if err := c.file.Close(); err != nil && c.err == nil {
			c.fail(err)
		}
	}
	return c.err
}

// shownWhole says that Summary's text is the very bytes that were printed. They are in the record then, and a file of their own would cost
// more than the rest of the capture; whoever reads them again takes them from there.
func (c *Capture) shownWhole() bool {
	return c.kept == c.total && c.total == int64(len(c.head)+len(c.tail.buf)) && utf8.Valid(c.memory)
}

// Open gives the kept bytes from the beginning; Close must have been called.
func (c *Capture) Open() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return io.NopCloser(bytes.NewReader(c.memory)), nil
	}
	return os.Open(c.path)
}

// Summary is the capture as results show it.
func (c *Capture) Summary() dray.Capture {
	c.mu.Lock()
	defer c.mu.Unlock()
	head, tail := c.head, c.tail.bytes()
	if omitted := c.total - int64(len(head)+len(tail)); omitted > 0 {
		head, tail = cutEnd(head), cutStart(tail)
	}
	omitted := c.total - int64(len(head)+len(tail))
	return dray.Capture{
		Text: c.text(head, tail, omitted), HeadBytes: int64(len(head)), TailBytes: int64(len(tail)), OmittedBytes: omitted,
		TotalBytes: c.total, KeptBytes: c.kept, Truncated: c.kept < c.total, SHA256: hex.EncodeToString(c.sum.Sum(nil)),
	}
}

func (c *Capture) text(head, tail []byte, omitted int64) string {
	var b bytes.Buffer
	b.Write(head)
	if omitted > 0 {
		if len(head) > 0 && head[len(head)-1] != '\n' {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[... %d bytes omitted, read them with id %s ... ]\n", omitted, c.id)
	}
	b.Write(tail)
	return string(bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")))
}

// Tail gives the last bytes that were printed, at most n and at most a view.
func (c *Capture) Tail(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := append(append([]byte(nil), c.head...), c.tail.bytes()...)
	if c.total > int64(len(b)) {
		b = c.tail.bytes()
	}
	return b[max(0, len(b)-n):]
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
