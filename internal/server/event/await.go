package event

import "time"

const (
	// maxReaderLag is how far output may be ahead of an awaited reader, in bytes. It is less than what memory holds, so such a reader misses nothing.
	maxReaderLag = maxBuffered / 2
	// readerStallTimeout is how long an awaited reader may stand still.
	readerStallTimeout = 30 * time.Second
)

// BlockingReader makes a reader from the beginning that output waits for, as the writer of a pipe waits for its reader: who starts a tool to have its output
// may want all of it, rather than a tool that is not slowed. The waiting ends for good when the reader is closed, when it stands still for half a
// minute, or with Release.
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

// makeRoom waits until the awaited reader, if there is one, is near enough. It gives up the lock meanwhile.
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
