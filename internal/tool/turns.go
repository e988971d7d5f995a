package tool

import (
	"context"
	"sync"
)

// fileLocks let those that change one file do it one after the other: an edit that is made of what another one is about to replace would be lost, or
// take the other's away. The zero value is ready.
type fileLocks struct {
	mu    sync.Mutex
	files map[string]*fileLock
}

// fileLock is the turn at one file, and how many have it or wait for it.
type fileLock struct {
	taken chan struct{} // holds one while somebody has it
	users int
}

// lock waits for the turn at a file, until the context ends. Whoever has it gives it up by calling done.
func (t *fileLocks) lock(ctx context.Context, file string) (done func(), err error) {
	one := t.acquire(file)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.release(file, one)
		}, nil
	case <-ctx.Done():
		t.release(file, one)
		return nil, context.Cause(ctx)
	}
}

func (t *fileLocks) acquire(file string) *fileLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		t.files = map[string]*fileLock{}
	}
	one := t.files[file]
	if one == nil {
		one = &fileLock{taken: make(chan struct{}, 1)}
		t.files[file] = one
	}
	one.users++
	return one
}

func (t *fileLocks) release(file string, one *fileLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.files, file)
	}
}
