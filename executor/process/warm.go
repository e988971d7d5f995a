package process

import (
	"slices"
	"time"
)

// maxIdle is how many supervisors are kept warm for good. Starting one and ending it costs more than a short tool; keeping one costs memory and
// a few threads.
const maxIdle = 16

// maxLinger is how many are kept for a while after many calls ran at once, and linger for how long: more calls come when many came.
const (
	maxLinger = 256
	linger    = 5 * time.Second
)

// Warm starts supervisors until n are idle.
func (p *Pool) Warm(n int) error {
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
	if !p.park(s) {
		p.discard(s)
	}
}

func (p *Pool) park(s *supervisor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxLinger {
		return false
	}
	s.since = time.Now()
	p.idle = append(p.idle, s)
	if len(p.idle) > maxIdle && p.cooling == nil {
		p.cooling = time.AfterFunc(linger, p.cool)
	}
	return true
}

// cool lets those go that nobody needed for long.
func (p *Pool) cool() {
	if !p.enter() {
		return
	}
	defer p.wg.Done()
	for _, s := range p.lingerers(time.Now()) {
		p.discard(s)
	}
}

// lingerers takes out those above maxIdle that were idle for too long by now, and sees to it that cool looks at the others.
func (p *Pool) lingerers(now time.Time) []*supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle)-maxIdle && now.Sub(p.idle[n].since) >= linger {
		n++
	}
	gone := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.cooling = nil
	if len(p.idle) > maxIdle {
		p.cooling = time.AfterFunc(p.idle[0].since.Add(linger).Sub(now), p.cool)
	}
	return gone
}
