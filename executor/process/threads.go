package process

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads a supervisor has from its beginning. The runtime makes one when it finds none that is free, and ends the
// whole program when the kernel refuses it: a tool that fills the container's limit of processes would so kill its supervisor. Threads that
// were made once are kept.
const spareThreads = 4

// ReserveThreads has the runtime make n threads, which it keeps and uses before it makes others.
func ReserveThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // each on a thread of its own, until all are there
			all.Done()
			all.Wait()
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}
