package wire

import "time"

// checksPerLease is how many times in a lease a side looks at its peer.
const checksPerLease = 12

// livenessMonitor adds up for how long a peer was seen to say nothing, and to take nothing. What
// counts is time that was looked at: a side that stood still itself (stopped, starved of its
// processor) saw nothing meanwhile, and what the peer said lies unread. So whatever lies between
// two looks counts for two intervals at most.
type livenessMonitor struct {
	interval     time.Duration
	last         time.Duration // when it was looked
	writing      int64         // the frame that was being written then, 0 for none
	silent       time.Duration
	writeStalled time.Duration
}

// observe is told what a look sees: the time, whether a frame came since the last one, and which is
// being written.
func (a *livenessMonitor) observe(now time.Duration, heard bool, writing int64) {
	seen := min(now-a.last, 2*a.interval)
	if a.silent += seen; heard {
		a.silent = 0
	}
	if a.writeStalled += seen; writing == 0 || writing != a.writing {
		a.writeStalled = 0
	}
	a.last, a.writing = now, writing
}

// livenessLoop ends the connection of a peer that says nothing, or takes nothing, for too long. It
// must not write itself: it would wait with the others.
func (m *Mux) livenessLoop() {
	interval := max(m.cfg.Lease/checksPerLease, time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	start, peer := time.Now(), livenessMonitor{interval: interval}
	for {
		select {
		case <-m.failed:
			return
		case <-tick.C:
		}
		m.pings.Store(0)
		peer.observe(time.Since(start), m.frameSeen.Swap(false), m.inWrite.Load())
		switch {
		case peer.writeStalled > m.cfg.Lease:
			m.fail(ErrWriteTimeout)
		case peer.silent > m.cfg.Lease:
			m.fail(ErrPeerTimeout)
		}
	}
}
