package event

import "time"

const (
	// maxAhead is how far output may be ahead of an awaited reader, in bytes. It is less than what memory holds, so such a reader misses nothing.
	maxAhead = maxHeld / 2
	// patience is how long an awaited reader may stand still.
	patience = 30 * time.Second
)

// Await makes a reader from the beginning that output waits for, as the writer of a pipe waits for its reader: who starts a tool to have its output
// may want all of it, rather than a tool that is not slowed. The waiting ends for good when the reader is closed, when it stands still for half a
// minute, or with Release.
func (l *Log) Await() *Reader {
	r := l.Reader(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited = r
	return r
}

// Release ends the waiting for a reader.
func (l *Log) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaitNobody()
}

func (l *Log) awaitNobody() {
	l.awaited = nil
	l.tellMoved()
}

func (l *Log) tellMoved() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// makeRoom waits until the awaited reader, if there is one, is near enough. It gives up the lock meanwhile.
func (l *Log) makeRoom() {
	for l.awaited != nil && l.ring.end-l.awaited.at > maxAhead {
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		stands := standsStill(moved)
		l.mu.Lock()
		if stands {
			l.awaitNobody()
		}
	}
}

func standsStill(moved <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-moved:
		return false
	case <-timer.C:
		return true
	}
}
