package linux

import (
	"context"
	"errors"
	"sync"
	"time"
)

// untrustedTimeout bounds one operation of an UntrustedDir.
const untrustedTimeout = 5 * time.Second

// errNotResponding is returned for an operation that took longer than untrustedTimeout.
var errNotResponding = errors.New("the file system does not respond")

// Bounds of the operations that run at a time. Each has a thread, and a thread that the kernel does
// not return from stays: a directory on a server that hangs must not use up those of the process.
const (
	maxOperations    = 1024
	maxDirOperations = 16
)

// operations are the running operations of all directories.
var operations = struct {
	all chan struct{}

	mu   sync.Mutex
	dirs map[UntrustedDir]*dirOperations
}{all: make(chan struct{}, maxOperations), dirs: map[UntrustedDir]*dirOperations{}}

// dirOperations are the operations of one directory.
type dirOperations struct {
	running chan struct{}
	users   int  // that run or wait
	hangs   bool // an operation takes longer than untrustedTimeout: others fail at once
}

// await runs an operation and returns its result, or an error when ctx is done or untrustedTimeout
// has elapsed. The operation then continues in its goroutine: no signal ends a thread that waits
// for the server of a file system.
func await[T any](ctx context.Context, d UntrustedDir, name string, run func() (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, untrustedTimeout, errNotResponding)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	var zero T
	dir, release, err := acquire(ctx, d)
	if err != nil {
		return zero, pathError("open", name, err)
	}
	done := make(chan result, 1)
	go func() {
		defer release()
		value, err := run()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		dir.setHangs(errors.Is(cause, errNotResponding))
		return zero, pathError("read", name, cause)
	}
}

// acquire waits until an operation may begin.
func acquire(ctx context.Context, d UntrustedDir) (*dirOperations, func(), error) {
	dir, err := d.join()
	if err != nil {
		return nil, nil, err
	}
	if err := send(ctx, dir.running); err != nil {
		d.leave(dir)
		return nil, nil, err
	}
	if err := send(ctx, operations.all); err != nil {
		<-dir.running
		d.leave(dir)
		return nil, nil, err
	}
	return dir, func() {
		dir.setHangs(false)
		<-operations.all
		<-dir.running
		d.leave(dir)
	}, nil
}

func (d UntrustedDir) join() (*dirOperations, error) {
	operations.mu.Lock()
	defer operations.mu.Unlock()
	dir := operations.dirs[d]
	if dir == nil {
		dir = &dirOperations{running: make(chan struct{}, maxDirOperations)}
		operations.dirs[d] = dir
	}
	if dir.hangs {
		return nil, errNotResponding
	}
	dir.users++
	return dir, nil
}

func (o *dirOperations) setHangs(hangs bool) {
	operations.mu.Lock()
	defer operations.mu.Unlock()
	o.hangs = hangs
}

func (d UntrustedDir) leave(dir *dirOperations) {
	operations.mu.Lock()
	defer operations.mu.Unlock()
	if dir.users--; dir.users == 0 {
		delete(operations.dirs, d)
	}
}

// send sends to a semaphore, or returns the cause of ctx.
func send(ctx context.Context, semaphore chan<- struct{}) error {
	select {
	case semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
