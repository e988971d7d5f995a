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
	// maxPiece bounds the output of one event, and maxMessage the text of one progress event.
	maxPiece   = 32 << 10
	maxMessage = 1 << 10
	// maxBuffered bounds what a running call holds in memory, maxBufferedUnread what one holds that
	// nobody has followed yet: so much stays in the processor's caches, and a flood costs next to
	// nothing. maxBufferedEnded bounds what an ended call holds.
	maxBuffered       = 4 << 20
	maxBufferedUnread = 256 << 10
	maxBufferedEnded  = 64 << 10
	// maxEvents bounds how many events can be read again. Of the states, which are few, the first
	// maxStates can always be.
	maxEvents = 8192
	maxStates = 16
)

// OpenFunc opens the kept output of the call from its beginning.
type OpenFunc func(stream dray.Stream) (io.ReadSeekCloser, error)

// Log is the events of one call. It is a [dray.Sink]: its methods may be called from several
// goroutines and wait for nobody.
type Log struct {
	open OpenFunc

	mu      sync.Mutex
	ring    ring
	entries []entry
	first   int64 // the sequence number of entries[0]
	states  []state
	sizes   [dray.Stderr + 1]int64
	// tailOpen says that the last entry is output that no reader has seen yet, so that more may join
	// it; born is when it began.
	tailOpen       bool
	tailSince      time.Time
	rate           rateLimiter
	end            []byte
	closed         bool
	readers        int
	blockingReader *Reader // the reader that output waits for, if there is one
	// closed when that reader moves, or is awaited no more; nil while no output waits
	moved chan struct{}
	wake  chan struct{} // closed when something happens; nil while nobody waits
}

// entry is one event. Its bytes stand in the ring from at on: output as it was printed, or the body
// of another event.
type entry struct {
	name   string
	stream dray.Stream // zero for what is not output
	size   int
	offset int64
	at     int64
}

// state is a state event, which is no part of the ring: whoever comes late after much output still
// hears how the call began.
type state struct {
	seq  int64
	body []byte
}

// NewLog makes an empty log. Output that has left the memory is read through open.
func NewLog(open OpenFunc) *Log {
	return &Log{open: open, first: 1, ring: ring{max: maxBufferedUnread}}
}

// Accepted says that the call has an id and a row in the trail. It comes before everything else.
func (l *Log) Accepted(id string) {
	body := append([]byte(`{"id":`), quote(id)...)
	l.add(State, append(body, `,"status":"running","phase":"accepted"}`...))
}

// Started says that the process was started.
func (l *Log) Started() {
	l.add(State, []byte(`{"status":"running","phase":"started"}`))
}

// Queued says that the call waits for its turn, or that it does so no more.
func (l *Log) Queued(waiting bool) {
	if waiting {
		l.add(State, []byte(`{"status":"queued","phase":"waiting"}`))
		return
	}
	l.add(State, []byte(`{"status":"running","phase":"turn"}`))
}

// Progress tells of a long wait before that. A message beyond 1 KiB is cut.
func (l *Log) Progress(phase, message string) {
	body := append([]byte(`{"phase":`), quote(phase[:min(len(phase), maxMessage)])...)
	body = append(body, `,"message":`...)
	body = append(body, quote(message[:min(len(message), maxMessage)])...)
	l.add(Progress, append(body, '}'))
}

func quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // invalid UTF-8 is replaced, and that alone is an error
	return b
}

// Output adds bytes as the tool printed them. It waits for nobody but an awaited reader.
func (l *Log) Output(stream dray.Stream, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 && !l.closed {
		l.makeRoom()
		p = p[l.appendOutput(stream, p):]
	}
}

// Finish adds the end event with its body, a JSON object. Nothing is added after it.
func (l *Log) Finish(body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.end, l.closed, l.tailOpen = body, true, false
	l.push(entry{name: End})
	l.free()
}

// free gives up most of the memory once the call is over and nobody is reading.
func (l *Log) free() {
	if l.closed && l.readers == 0 {
		l.ring.shrink(maxBufferedEnded)
	}
}

// Size is about how many bytes of memory an ended log holds.
func (l *Log) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.end) + len(l.ring.buf) + 48*cap(l.entries)
}

// add appends an event that is not output.
func (l *Log) add(name string, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if name == Progress {
		l.ring.max = maxBuffered // it is kept nowhere else, and is no flood
	}
	l.tailOpen = false
	if name == State && len(l.states) < maxStates {
		l.push(entry{name: name, at: l.ring.end})
		l.states = append(l.states, state{seq: l.first + int64(len(l.entries)) - 1, body: body})
		return
	}
	l.push(entry{name: name, size: len(body), at: l.ring.end})
	l.ring.write(body)
}

// stateFrom gives the first state event that is kept from a sequence number on.
func (l *Log) stateFrom(seq int64) (state, bool) {
	for _, s := range l.states {
		if s.seq >= seq {
			return s, true
		}
	}
	return state{}, false
}

// appendOutput adds as much of p to the last entry, or to a new one, as an event may have, and says
// how much that was.
func (l *Log) appendOutput(stream dray.Stream, p []byte) int {
	if !l.tailOpen || l.last().stream != stream {
		l.push(entry{name: nameOf(stream), stream: stream, offset: l.sizes[stream], at: l.ring.end})
		l.tailOpen, l.tailSince = true, time.Now()
	}
	last := l.last()
	if last.size <= utf8.UTFMax {
		// a reader may wait for the rest of a character; for more of what it can have already none does
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

// incomplete counts the bytes of a begun character at the end of the last entry, which is output.
func (l *Log) incomplete() int {
	n := min(l.last().size, 3)
	return incomplete(l.ring.read(make([]byte, 0, 3), l.ring.end-int64(n), n))
}

// sealTail ends the growing entry after n bytes. What it has beyond becomes a growing entry of its
// own.
func (l *Log) sealTail(n int) {
	last := l.last()
	rest := entry{
		name: last.name, stream: last.stream, size: last.size - n,
		offset: last.offset + int64(n), at: last.at + int64(n),
	}
	last.size = n
	l.tailOpen = rest.size > 0
	if l.tailOpen {
		l.push(rest)
		l.tailSince = time.Now()
	}
}

func (l *Log) last() *entry { return &l.entries[len(l.entries)-1] }

// push appends an entry, forgets the oldest beyond maxEvents, and wakes whoever waits.
func (l *Log) push(e entry) {
	l.notify()
	l.entries = append(l.entries, e)
	if over := len(l.entries) - maxEvents; over > 0 {
		l.entries = l.entries[over:]
		l.first += int64(over)
	}
}

// notify wakes whoever waits.
func (l *Log) notify() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// changed gives the channel that the next signal closes.
func (l *Log) changed() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

// BufferedOutput gives everything that was printed on a stream so far, if memory still has all of
// it.
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
	// maxReaderLag is how far output may be ahead of an awaited reader, in bytes. It is less than what
	// memory holds, so such a reader misses nothing.
	maxReaderLag = maxBuffered / 2
	// readerStallTimeout is how long an awaited reader may stand still.
	readerStallTimeout = 30 * time.Second
)

// BlockingReader makes a reader from the beginning that output waits for, as the writer of a pipe
// waits for its reader: who starts a tool to have its output may want all of it, rather than a tool
// that is not slowed. The waiting ends for good when the reader is closed, when it stands still for
// half a minute, or with Release.
func (l *Log) BlockingReader() *Reader {
	r := l.Reader(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blockingReader = r
	return r
}

// ReleaseReader ends the waiting for a reader.
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

// makeRoom waits until the awaited reader, if there is one, is near enough. It gives up the lock
// meanwhile.
func (l *Log) makeRoom() {
	for l.blockingReader != nil && l.ring.end-l.blockingReader.at > maxReaderLag {
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		stands := waitStalled(moved)
		l.mu.Lock()
		if stands {
			l.clearBlockingReader()
		}
	}
}

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
