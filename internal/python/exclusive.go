package python

import (
	"context"

	"github.com/dray-dev/dray"
)

// Exclusive is a session that no call runs in. Its methods must not be used concurrently, nor after
// the function that got it has returned.
type Exclusive struct {
	sessions *Sessions
	hold     *hold
	env      dray.Environment
	spec     CallSpec
}

// Exclusive calls work while no call runs in the session, and no other can start. It waits for that
// as Start does, and fails with the same errors and with that of work. Reset and Close end the
// context of work with their cause. The worker keeps running. Request and Files of spec are not
// used.
func (s *Sessions) Exclusive(ctx context.Context, key Key, env dray.Environment, spec CallSpec,
	work func(context.Context, *Exclusive) error,
) error {
	return s.withSession(ctx, key, func(ctx context.Context, h *hold) error {
		defer s.release(h)
		return work(ctx, &Exclusive{sessions: s, hold: h, env: env, spec: spec})
	})
}

// Status describes the session.
func (x *Exclusive) Status() Status {
	x.sessions.mu.Lock()
	defer x.sessions.mu.Unlock()
	return x.hold.session.status()
}

// Worker returns the hello of the session's worker, and starts one if there is none.
func (x *Exclusive) Worker(ctx context.Context) (Hello, error) {
	r, err := x.sessions.worker(ctx, x.hold, x.env, x.spec)
	if err != nil {
		return Hello{}, err
	}
	return r.worker.Hello(), nil
}

// SetExecutable sets the interpreter of later workers; empty is that of the environment. It does
// not change the worker that runs.
func (x *Exclusive) SetExecutable(executable string) {
	x.sessions.mu.Lock()
	defer x.sessions.mu.Unlock()
	x.hold.session.prepared.Executable = executable
}

// Restart ends the worker, if there is one, and starts one with another interpreter in the same
// slot. discarded says that user code had run in the old one; then no later reply repeats it. If
// the new worker does not start, the session has none, and keeps the executable that it had; its
// next reply reports the loss.
func (x *Exclusive) Restart(ctx context.Context, executable string) (h Hello, discarded bool,
	err error,
) {
	s, sess := x.sessions, x.hold.session
	if gone := x.endWorker(); gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
			return Hello{}, false, context.Cause(ctx)
		}
	}
	old := x.Status().Executable
	x.SetExecutable(executable)
	h, err = x.Worker(ctx)
	if err != nil {
		x.SetExecutable(old)
		return Hello{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	discarded, sess.lost = sess.lost > 0, 0
	if sess.resident != nil {
		sess.resident.afterLoss = false
	}
	s.journal.record(sess.key, sess.generation, false)
	return h, discarded, nil
}

// endWorker kills the worker of the session. Its slot stays with the call.
func (x *Exclusive) endWorker() (gone <-chan struct{}) {
	s, sess := x.sessions, x.hold.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess.resident == nil {
		return nil
	}
	sess.resident.heir = x.hold
	s.kill(sess)
	return sess.resident.gone
}
