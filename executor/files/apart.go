package files

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/dray-dev/dray"
)

// batch is how many entries are come to before they are handed over: waking a thread for each would cost more than the files.
const batch = 32

// ReadTreeOnThread is Local.ReadTree by a thread that does nothing else. It calls enter on that thread, which may give it other rights than this
// process has, and which opens the folder to collect beneath; then it finds and opens the files, some ahead of their reader, and is thrown
// away. It needs a /proc.
func ReadTreeOnThread(ctx context.Context, what dray.ReadTreeOptions, enter func() (*os.File, error)) (dray.Tree, error) {
	a := &threadReader{batches: make(chan []item), begun: make(chan error, 1), quit: make(chan struct{}), done: make(chan struct{})}
	gone := func() error { return contextError(ctx) }
	go a.run(what, enter, gone) // ends with close
	if err := <-a.begun; err != nil {
		a.close()
		a.rethrow()
		return nil, err
	}
	return &localTree{next: a.next, stopErr: gone, close: a.close, now: noItem}, nil
}

// threadReader is the thread's work and who waits for it.
type threadReader struct {
	batches chan []item // closed at the end, when err is set
	err     error
	begun   chan error
	panic   any           // what went wrong inside
	quit    chan struct{} // closed by close
	done    chan struct{} // closed when the thread has let go of everything

	ready []item // taken from batches and not given yet
}

func (a *threadReader) run(what dray.ReadTreeOptions, enter func() (*os.File, error), gone func() error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this function
	defer close(a.done)
	defer close(a.batches)
	defer a.recordPanic()
	root, err := enter()
	if err != nil {
		a.begun <- err
		return
	}
	defer func() { _ = root.Close() }()
	c, err := newCollecting(descriptor(root.Fd()), what, gone)
	if a.begun <- err; err != nil {
		return
	}
	defer c.close()
	for a.err == nil {
		var items []item
		items, a.err = c.nextBatch()
		select {
		case a.batches <- items:
		case <-a.quit:
			closeItems(items)
			return
		}
	}
}

// recordPanic keeps a panic of the thread for whoever waits for it: nobody else is around this goroutine.
func (a *threadReader) recordPanic() {
	if v := recover(); v != nil {
		a.panic = fmt.Sprintf("%v, on a thread of its own:\n%s", v, debug.Stack())
		select {
		case a.begun <- errTreeClosed:
		default: // it had begun
		}
	}
}

// rethrow goes on with the thread's panic in the goroutine that wants its files. The thread is over.
func (a *threadReader) rethrow() {
	if a.panic != nil {
		panic(a.panic)
	}
}

// nextBatch gives the next entries, and what ended them.
func (c *treeReader) nextBatch() ([]item, error) {
	items := make([]item, 0, batch)
	for len(items) < batch {
		it, err := c.next()
		if err != nil {
			return items, err
		}
		items = append(items, it)
	}
	return items, nil
}

func closeItems(items []item) {
	for _, it := range items {
		it.file.close()
	}
}

func (a *threadReader) next() (item, error) {
	for len(a.ready) == 0 {
		items, ok := <-a.batches
		if !ok {
			a.rethrow()
			return noItem, a.err
		}
		a.ready = items
	}
	it := a.ready[0]
	a.ready = a.ready[1:]
	return it, nil
}

func (a *threadReader) close() {
	close(a.quit)
	closeItems(a.ready)
	a.ready = nil
	<-a.done
}
