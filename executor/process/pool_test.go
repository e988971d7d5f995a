package process

import (
	"testing"
	"time"
)

// The supervisors of many concurrent calls are kept for idleTimeout. Then the pool releases those
// above maxIdleSupervisors, the longest idle first.
func TestIdleSupervisorsExpire(t *testing.T) {
	// a supervisor that exits when the pool closes its connection
	p := NewPool(SupervisorConfig{Path: "/bin/sh", Args: []string{"sh", "-c", "read x <&3"}})
	t.Cleanup(p.Close)
	if err := p.Prestart(maxIdleSupervisors + 3); err != nil {
		t.Fatal(err)
	}
	if len(p.idle) != maxIdleSupervisors+3 || p.cooling == nil {
		t.Fatalf("%d are idle, want %d and a timer", len(p.idle), maxIdleSupervisors+3)
	}
	first := p.idle[0]
	if s, idle, err := p.take(true); err != nil || !idle || s == first {
		t.Errorf("take returns %v (idle: %v), %v: want the one that was put last", s, idle, err)
	} else {
		p.put(s)
	}
	p.idle[2].since = p.idle[2].since.Add(time.Hour)
	expired := p.takeExpired(p.idle[1].since.Add(idleTimeout))
	if len(expired) != 2 || expired[0] != first || len(p.idle) != maxIdleSupervisors+1 ||
		p.cooling == nil {
		t.Errorf("%d expired, %d are left, want the 2 that were idle for longest", len(expired),
			len(p.idle))
	}
	for _, s := range expired {
		p.release(s)
	}
	if expired = p.takeExpired(time.Now().Add(2 * time.Hour)); len(expired) != 1 ||
		len(p.idle) != maxIdleSupervisors || p.cooling != nil {
		t.Errorf("%d expired, %d are left, want %d", len(expired), len(p.idle), maxIdleSupervisors)
	}
	p.release(expired[0])
}
