package process

import (
	"slices"
	"time"
)

// maxIdleSupervisors is how many supervisors are kept warm for good. Starting one and ending it costs more than a short tool; keeping one costs memory and
// a few threads.
const maxIdleSupervisors = 16

// maxTemporaryIdle is how many are kept for a while after many calls ran at once, and linger for how long: more calls come when many came.
const (
	maxTemporaryIdle = 256
	idleTimeout      = 5 * time.Second
)

// Prestart starts supervisors until n are idle.
func (p *Pool) Prestart(n int) error {
	for range n {
		s, err := p.spawn()
		if err != nil {
			return err
		}
		p.put(s)
	}
	return nil
}

func (p *Pool) take() (s *supervisor, fresh bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		s = p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, false, nil
	}
	p.mu.Unlock()
	s, err = p.spawn()
	return s, true, err
}

func (p *Pool) put(s *supervisor) {
	if !p.putIdle(s) {
		p.release(s)
	}
}

func (p *Pool) putIdle(s *supervisor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxTemporaryIdle {
		return false
	}
	s.since = time.Now()
	p.idle = append(p.idle, s)
	if len(p.idle) > maxIdleSupervisors && p.cooling == nil {
		p.cooling = time.AfterFunc(idleTimeout, p.evictIdle)
	}
	return true
}

// evictIdle lets those go that nobody needed for long.
func (p *Pool) evictIdle() {
	if !p.enter() {
		return
	}
	defer p.wg.Done()
	for _, s := range p.takeExpired(time.Now()) {
		p.release(s)
	}
}

// takeExpired takes out those above maxIdleSupervisors that were idle for too long by now, and sees to it that cool looks at the others.
func (p *Pool) takeExpired(now time.Time) []*supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle)-maxIdleSupervisors && now.Sub(p.idle[n].since) >= idleTimeout {
		n++
	}
	gone := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.cooling = nil
	if len(p.idle) > maxIdleSupervisors {
		p.cooling = time.AfterFunc(p.idle[0].since.Add(idleTimeout).Sub(now), p.evictIdle)
	}
	return gone
}
