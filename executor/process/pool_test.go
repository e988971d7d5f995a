package process

import (
	"testing"
	"time"
)

// The supervisors of many calls at once are there for the next ones, for a while; then those that
// nobody took again go, the longest idle first.
func TestLingerers(t *testing.T) {
	// one that ends when the pool hangs up
	p := NewPool(SupervisorConfig{Path: "/bin/sh", Args: []string{"sh", "-c", "read x <&3"}})
	t.Cleanup(p.Close)
	if err := p.Prestart(maxIdleSupervisors + 3); err != nil {
		t.Fatal(err)
	}
	if len(p.idle) != maxIdleSupervisors+3 || p.cooling == nil {
		t.Fatalf("%d are idle, want %d that are looked at later", len(p.idle), maxIdleSupervisors+3)
	}
	first := p.idle[0]
	if s, fresh, err := p.take(); err != nil || fresh || s == first {
		t.Errorf("the next call gets %v (new: %v), %v: want the last that was put there", s, fresh, err)
	} else {
		p.put(s)
	}
	p.idle[2].since = p.idle[2].since.Add(time.Hour)
	gone := p.takeExpired(p.idle[1].since.Add(idleTimeout))
	if len(gone) != 2 || gone[0] != first || len(p.idle) != maxIdleSupervisors+1 || p.cooling == nil {
		t.Errorf("%d go, %d stay, want the 2 that were idle for long", len(gone), len(p.idle))
	}
	for _, s := range gone {
		p.release(s)
	}
	if gone = p.takeExpired(time.Now().Add(2 * time.Hour)); len(gone) != 1 ||
		len(p.idle) != maxIdleSupervisors || p.cooling != nil {
		t.Errorf("%d go, %d stay, want %d for good", len(gone), len(p.idle), maxIdleSupervisors)
	}
	p.release(gone[0])
}
