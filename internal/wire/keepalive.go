package wire

import "time"

// checksPerLease is the number of times in a lease that a side checks its peer.
const checksPerLease = 12

// livenessMonitor sums up the time in which a peer sent nothing, and in which it read nothing. The
// time between two checks counts for two intervals at most: a side that was stopped, or had no
// processor, has not read what the peer sent meanwhile.
type livenessMonitor struct {
	interval     time.Duration
	last         time.Duration // the last check
	writing      int64         // the number of the current write then, 0 for none
	silent       time.Duration
	writeStalled time.Duration
}

// observe adds one check at the time now: whether a frame was received since the last one, and the
// number of the current write.
func (a *livenessMonitor) observe(now time.Duration, received bool, writing int64) {
	elapsed := min(now-a.last, 2*a.interval)
	if a.silent += elapsed; received {
		a.silent = 0
	}
	if a.writeStalled += elapsed; writing == 0 || writing != a.writing {
		a.writeStalled = 0
	}
	a.last, a.writing = now, writing
}

// livenessLoop ends the connection of a peer that sends nothing, or reads nothing, for a lease. It
// does not write, because a write could block.
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
