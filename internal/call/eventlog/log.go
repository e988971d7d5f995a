// Package eventlog is the bounded log of the events of one call.
//
// The tool is not slowed down by readers. Events have sequence numbers from 1, and each of any
// number of readers starts after any of them. The newest 4 MiB of output are in memory, or 256 KiB
// while the call has no reader. Older output is read from its capture. Output that is not captured
// is skipped, which readers see from the offsets. Output is published at once, and in larger pieces
// if a tool writes faster than that.
package eventlog

import (
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

const (
	// maxPiece bounds the output in one event, and maxMessage the text of one progress event, in
	// bytes.
	maxPiece   = 32 << 10
	maxMessage = 1 << 10
	// maxBuffered bounds the bytes in memory of a running call. maxBufferedUnread bounds those of a
	// call without a reader so far: it fits in the processor's caches, which makes a flood of output
	// cheap. maxBufferedEnded bounds those of an ended call.
	maxBuffered       = 4 << 20
	maxBufferedUnread = 256 << 10
	maxBufferedEnded  = 64 << 10
	// notInMemory is the position of output that the ring never had.
	notInMemory = -1
	// maxEvents bounds the events that can be read again. The first maxStates state events always can.
	maxEvents = 8192
	maxStates = 16
)

// OpenFunc opens the captured output of the call from its beginning.
type OpenFunc func(stream dray.Stream) (io.ReadSeekCloser, error)

// Log is the events of one call. It is safe for concurrent use. Only Output can block, for a
// blocking reader.
type Log struct {
	open OpenFunc

	mu      sync.Mutex
	ring    ring
	entries []entry
	first   int64 // sequence number of entries[0]
	states  []state
	sizes   [dray.Stderr + 1]int64
	// tailOpen is set if the last entry is output that no reader has read yet, to which more output is
	// added. tailSince is the time of its first byte.
	tailOpen       bool
	tailSince      time.Time
	rate           rateLimiter
	end            []byte
	closed         bool
	readers        int
	blockingReader *Reader // nil if output does not block
	// closed when the blocking reader advances or is released; nil while no output is blocked
	moved chan struct{}
	wake  chan struct{} // closed on the next change; nil while no reader waits
}

// entry is one event. Its bytes are in the ring at position at: raw output, or the body of another
// event.
type entry struct {
	name   string
	stream dray.Stream // zero for an event without output
	size   int
	offset int64
	at     int64
	time   int64 // nanoseconds since 1970 UTC; of output, the time of its first byte
}

// state is a state event. Its body is not in the ring, where later output would overwrite it.
type state struct {
	seq  int64
	time int64
	body []byte
}

// NewLog returns an empty log. It reads output that is no longer in memory with open.
func NewLog(open OpenFunc) *Log {
	return &Log{open: open, first: 1, ring: ring{max: maxBufferedUnread}}
}

// Accepted adds the first event: the call has an id and a begin record.
func (l *Log) Accepted(id string) {
	body := append([]byte(`{"id":`), quote(id)...)
	l.add(State, append(body, `,"status":"running","phase":"accepted"}`...))
}

// Started adds the event that the process was started.
func (l *Log) Started() {
	l.add(State, []byte(`{"status":"running","phase":"started"}`))
}

// Queued adds the event that the call waits for a slot, or that it has one.
func (l *Log) Queued(waiting bool) {
	if waiting {
		l.add(State, []byte(`{"status":"queued","phase":"waiting"}`))
		return
	}
	l.add(State, []byte(`{"status":"running","phase":"turn"}`))
}

// Progress adds an event about the preparation of the call. It truncates a message to 1 KiB.
func (l *Log) Progress(phase, message string) {
	body := append([]byte(`{"phase":`), quote(phase[:min(len(phase), maxMessage)])...)
	body = append(body, `,"message":`...)
	body = append(body, quote(message[:min(len(message), maxMessage)])...)
	l.add(Progress, append(body, '}'))
}

func quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // it replaces invalid UTF-8, and fails only for that
	return b
}

// Output adds output of the tool. It blocks only if there is a blocking reader.
func (l *Log) Output(stream dray.Stream, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 && !l.closed {
		l.waitForReader()
		p = p[l.appendOutput(stream, p):]
	}
}

// Captured adds the captured output of a stream, for the log of a call that ran earlier. Output
// that is no longer retained is skipped.
func (l *Log) Captured(stream dray.Stream) {
	size := l.capturedSize(stream)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UnixNano()
	piece := max(maxPiece, size/(maxEvents/4)) // no event may be dropped
	for at := int64(0); at < size; at += piece {
		l.push(entry{
			name: nameOf(stream), stream: stream, size: int(min(piece, size-at)), offset: at,
			at: notInMemory, time: now,
		})
	}
	l.sizes[stream] = size
}

func (l *Log) capturedSize(stream dray.Stream) int64 {
	f, err := l.open(stream)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // it was only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0
	}
	return size
}

// Finish adds the end event with its time and its body, a JSON object. Later events are ignored.
func (l *Log) Finish(at time.Time, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.end, l.closed, l.tailOpen = body, true, false
	l.push(entry{name: End, time: at.UnixNano()})
	l.free()
}

// free releases most of the memory of an ended call without readers.
func (l *Log) free() {
	if l.closed && l.readers == 0 {
		l.ring.shrink(maxBufferedEnded)
	}
}

// Size returns about how many bytes of memory an ended log uses.
func (l *Log) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.end) + len(l.ring.buf) + 56*cap(l.entries)
}

// add adds an event without output.
func (l *Log) add(name string, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if name == Progress {
		l.ring.max = maxBuffered // progress is not captured, and there is little of it
	}
	l.tailOpen = false
	now := time.Now().UnixNano()
	if name == State && len(l.states) < maxStates {
		l.push(entry{name: name, at: l.ring.end, time: now})
		seq := l.first + int64(len(l.entries)) - 1
		l.states = append(l.states, state{seq: seq, time: now, body: body})
		return
	}
	l.push(entry{name: name, size: len(body), at: l.ring.end, time: now})
	l.ring.write(body)
}

// stateFrom returns the first retained state event at or after a sequence number.
func (l *Log) stateFrom(seq int64) (state, bool) {
	for _, s := range l.states {
		if s.seq >= seq {
			return s, true
		}
	}
	return state{}, false
}

// appendOutput adds the beginning of p to the last entry or to a new one, as far as it fits into
// one event, and returns the number of bytes added.
func (l *Log) appendOutput(stream dray.Stream, p []byte) int {
	if !l.tailOpen || l.last().stream != stream {
		l.openTail(entry{
			name: nameOf(stream), stream: stream, offset: l.sizes[stream], at: l.ring.end,
		})
	}
	last := l.last()
	if last.size <= utf8.UTFMax {
		// only a reader that waits for the rest of a character is blocked on an existing entry
		l.notify()
	}
	n := min(len(p), maxPiece-last.size)
	l.ring.write(p[:n])
	last.size += n
	l.sizes[stream] += int64(n)
	if last.size == maxPiece {
		l.sealTail(maxPiece - l.incomplete())
	}
	return n
}

// incomplete returns the number of bytes of an incomplete character at the end of the last entry,
// which is output.
func (l *Log) incomplete() int {
	n := min(l.last().size, 3)
	return incomplete(l.ring.read(make([]byte, 0, 3), l.ring.end-int64(n), n))
}

// sealTail closes the last entry after n bytes. The rest of its bytes becomes a new open entry.
func (l *Log) sealTail(n int) {
	last := l.last()
	rest := entry{
		name: last.name, stream: last.stream, size: last.size - n,
		offset: last.offset + int64(n), at: last.at + int64(n),
	}
	last.size = n
	l.tailOpen = false
	if rest.size > 0 {
		l.openTail(rest)
	}
}

// openTail adds an entry of output to which more output is added.
func (l *Log) openTail(e entry) {
	l.tailOpen, l.tailSince = true, time.Now()
	e.time = l.tailSince.UnixNano()
	l.push(e)
}

func (l *Log) last() *entry { return &l.entries[len(l.entries)-1] }

// push adds an entry, removes the oldest beyond maxEvents and wakes the readers.
func (l *Log) push(e entry) {
	l.notify()
	l.entries = append(l.entries, e)
	if over := len(l.entries) - maxEvents; over > 0 {
		l.entries = l.entries[over:]
		l.first += int64(over)
	}
}

// notify wakes the waiting readers.
func (l *Log) notify() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// changed returns the channel that the next notify closes.
func (l *Log) changed() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

// BufferedOutput returns all output of a stream so far, and whether it is complete. It is
// incomplete if a part of it is no longer in memory.
func (l *Log) BufferedOutput(stream dray.Stream) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]byte, 0, min(l.sizes[stream], maxBuffered))
	for _, e := range l.entries {
		if e.stream != stream {
			continue
		}
		if e.offset != int64(len(all)) || !l.ring.holds(e.at) {
			return nil, false
		}
		all = l.ring.read(all, e.at, e.size)
	}
	return all, int64(len(all)) == l.sizes[stream]
}

const (
	// maxReaderLag bounds how many bytes output may be ahead of a blocking reader. It is less than
	// maxBuffered, so such a reader misses nothing.
	maxReaderLag = maxBuffered / 2
	// readerStallTimeout bounds how long a blocking reader may read nothing before it is released.
	readerStallTimeout = 30 * time.Second
)

// BlockingReader returns a reader from the beginning that blocks output, as a pipe does, so that it
// gets all of it. Output no longer blocks once the reader is closed, stalls for 30 seconds, or is
// released.
func (l *Log) BlockingReader() *Reader {
	r := l.Reader(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blockingReader = r
	return r
}

// ReleaseReader makes the blocking reader an ordinary one.
func (l *Log) ReleaseReader() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearBlockingReader()
}

func (l *Log) clearBlockingReader() {
	l.blockingReader = nil
	l.signalReaderMoved()
}

func (l *Log) signalReaderMoved() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// waitForReader blocks until the blocking reader, if there is one, is at most maxReaderLag behind.
// It releases the lock meanwhile.
func (l *Log) waitForReader() {
	for l.blockingReader != nil && l.ring.end-l.blockingReader.at > maxReaderLag {
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		stalled := waitStalled(moved)
		l.mu.Lock()
		if stalled {
			l.clearBlockingReader()
		}
	}
}

// waitStalled waits until the blocking reader advances and reports whether it stalled instead.
func waitStalled(moved <-chan struct{}) bool {
	timer := time.NewTimer(readerStallTimeout)
	defer timer.Stop()
	select {
	case <-moved:
		return false
	case <-timer.C:
		return true
	}
}

// ring has the newest bytes of a sequence that only grows. Positions count from the beginning of
// the sequence; the bytes before start are overwritten. The buffer grows up to max bytes.
type ring struct {
	buf        []byte
	start, end int64
	max        int
}

const ringMin = 512

// write appends p, which has at most max bytes.
func (r *ring) write(p []byte) {
	r.reserve(int(r.end-r.start) + len(p))
	for len(p) > 0 {
		n := copy(r.buf[r.index(r.end):], p)
		r.end += int64(n)
		p = p[n:]
	}
	r.start = max(r.start, r.end-int64(len(r.buf)))
}

// holds reports whether the ring has all bytes from a position on.
func (r *ring) holds(at int64) bool { return at >= r.start }

// read appends n bytes from a position, which the ring must hold, to dst.
func (r *ring) read(dst []byte, at int64, n int) []byte {
	for n > 0 {
		i := r.index(at)
		part := r.buf[i:min(i+n, len(r.buf))]
		dst = append(dst, part...)
		at += int64(len(part))
		n -= len(part)
	}
	return dst
}

// reserve grows the buffer to n bytes, at most to max.
func (r *ring) reserve(n int) {
	size := max(len(r.buf), ringMin)
	for size < n && size < r.max {
		size *= 2
	}
	r.resize(min(size, r.max))
}

// shrink discards all but the newest n bytes and releases their memory.
func (r *ring) shrink(n int) {
	r.max = n
	r.resize(min(n, int(r.end-r.start)))
}

func (r *ring) resize(size int) {
	if size == len(r.buf) {
		return
	}
	start := max(r.start, r.end-int64(size))
	kept := r.read(make([]byte, 0, size), start, int(r.end-start))
	r.buf, r.start = make([]byte, size), start
	for at := start; len(kept) > 0; {
		n := copy(r.buf[r.index(at):], kept)
		at += int64(n)
		kept = kept[n:]
	}
}

func (r *ring) index(at int64) int { return int(at % int64(len(r.buf))) }
