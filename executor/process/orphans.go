package process

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// reapOrphans ends what supervisors that were killed left behind. It is all the children of this program that are no supervisors, with what is
// below them: a pool that is not alone here cannot tell them from other children, and so proves nothing. Survivors are those that did
// not go within the patience.
func (p *Pool) reapOrphans() (survivors []int, proven bool) {
	if !p.config.Subreaper || !childrenAreListed() {
		return nil, false
	}
	hopeless := time.Now().Add(killTimeout)
	pause := 200 * time.Microsecond
	for seen := 0; seen < 2; { // the kernel may pass over a child while others end: nobody has to be there twice
		strays := p.orphans()
		if len(strays) == 0 {
			seen++
			continue
		}
		seen = 0
		if time.Now().After(hopeless) {
			return pidsOf(strays), true
		}
		killOrphans(strays)
		time.Sleep(pause)
		pause = min(pause*2, 50*time.Millisecond)
	}
	return nil, true
}

// orphans are the children that no supervisor is. While they are listed, none is born.
func (p *Pool) orphans() []descendant {
	p.spawnMu.Lock()
	defer p.spawnMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	var strays []descendant
	for _, d := range childrenOf(os.Getpid(), nil) {
		if _, known := p.pids[d.pid]; !known {
			strays = append(strays, d)
		}
	}
	return strays
}

// killOrphans kills them with all that is below them, and collects those that have ended.
func killOrphans(strays []descendant) {
	self := os.Getpid()
	queue := slices.Clone(strays)
	for i := 0; i < len(queue); i++ {
		queue = queue[i].signal(syscall.SIGKILL, self, queue)
	}
	for _, d := range strays {
		_, _ = syscall.Wait4(d.pid, nil, syscall.WNOHANG|syscall.WALL, nil) // one that runs on is looked at again
	}
}

func pidsOf(list []descendant) []int {
	pids := make([]int, len(list))
	for i, d := range list {
		pids[i] = d.pid
	}
	return pids
}

// childrenAreListed says whether the kernel tells a process's children at all (CONFIG_PROC_CHILDREN, and a /proc that is mounted).
func childrenAreListed() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}
