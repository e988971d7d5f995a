package tool

import (
	"context"
	"sync"
)

// turns let those that change one file do it one after the other: an edit that is made of what another one is about to replace would be lost, or
// take the other's away. The zero value is ready.
type turns struct {
	mu    sync.Mutex
	files map[string]*turn
}

// turn is the turn at one file, and how many have it or wait for it.
type turn struct {
	taken chan struct{} // holds one while somebody has it
	users int
}

// take waits for the turn at a file, until the context ends. Whoever has it gives it up by calling done.
func (t *turns) take(ctx context.Context, file string) (done func(), err error) {
	one := t.join(file)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.leave(file, one)
		}, nil
	case <-ctx.Done():
		t.leave(file, one)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(file string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		t.files = map[string]*turn{}
	}
	one := t.files[file]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.files[file] = one
	}
	one.users++
	return one
}

func (t *turns) leave(file string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.files, file)
	}
}
