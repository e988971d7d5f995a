package process

import (
	"slices"
	"sync"
	"time"
)

// childRegistry knows which children of this program are supervisors. All others are orphans that a
// killed supervisor left.
type childRegistry struct {
	subreaper bool
	// spawnMu is read-locked while a supervisor is forked. orphans write-locks it, so every
	// unregistered child that it finds is an orphan.
	spawnMu     sync.RWMutex
	mu          sync.Mutex
	supervisors map[int]struct{} // pids that were not waited for yet
	killing     bool             // in the goroutine of killLater
	closed      bool
	wg          sync.WaitGroup
}

// fork starts a supervisor by launch and registers it.
func (c *childRegistry) fork(launch func() (*supervisor, error)) (*supervisor, error) {
	c.spawnMu.RLock()
	defer c.spawnMu.RUnlock()
	if c.subreaper {
		if err := becomeSubreaper(); err != nil {
			return nil, err
		}
	}
	s, err := launch()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.supervisors[s.proc.Pid] = struct{}{}
	return s, nil
}

func (c *childRegistry) remove(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.supervisors, pid)
}

// killOrphans kills what killed supervisors left: all children of this program that are no
// supervisors, with their descendants. It returns the pids that KILL did not end within
// killTimeout; a goroutine kills them later. proven is false where the children cannot be told from
// others, are not listed by the kernel, or may be hidden from this program.
func (c *childRegistry) killOrphans() (survivors []int, proven bool) {
	if !c.subreaper || !childrenAreListed() {
		return nil, false
	}
	begun, changed, last := time.Now(), time.Now(), []int(nil)
	survivors = c.killWhile(func(pids []int) bool {
		if !slices.Equal(pids, last) {
			last, changed = pids, time.Now()
		}
		return time.Since(changed) <= killTimeout && time.Since(begun) <= maxKillTimeout
	})
	if len(survivors) > 0 {
		c.killLater()
		return survivors, true
	}
	return nil, !canHideProcesses()
}

// killWhile kills orphans until none is left, or until goOn returns false for those that are.
func (c *childRegistry) killWhile(goOn func(pids []int) bool) (left []int) {
	interval := 200 * time.Microsecond
	// the kernel's list may omit a child while others end, so it must be empty twice
	for empty := 0; empty < 2; {
		orphans := c.orphans()
		if len(orphans) == 0 {
			empty++
			continue
		}
		empty = 0
		if pids := pidsOf(orphans); !goOn(pids) {
			return pids
		}
		killAndReap(orphans)
		time.Sleep(interval)
		interval = min(interval*2, maxKillInterval)
	}
	return nil
}

// killLater kills orphans in a goroutine until none is left, or until close.
func (c *childRegistry) killLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killing || c.closed {
		return
	}
	c.killing = true
	c.wg.Go(func() {
		c.killWhile(func([]int) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.closed
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.killing = false
	})
}

// close ends the goroutine of killLater, and kills orphans a last time.
func (c *childRegistry) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
	c.killOrphans()
}

// orphans returns the children that are no supervisors.
func (c *childRegistry) orphans() []descendant {
	c.spawnMu.Lock()
	defer c.spawnMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(ownChildren(), func(d descendant) bool {
		_, ok := c.supervisors[d.pid]
		return ok
	})
}
