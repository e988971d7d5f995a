package python

import (
	"context"

	"github.com/dray-dev/dray"
)

// Exclusive is a session in which no call runs. Its methods must not be used concurrently, nor
// after the function that received it has returned.
type Exclusive struct {
	sessions *Sessions
	hold     *hold
	env      dray.Environment
	spec     CallSpec
}

// Exclusive calls work while no call runs in the session and none can start. It waits for the
// session as Start does, and fails with the errors of Start and of work. Reset and Close cancel the
// context of work with a cause. The worker keeps running. Request and Files of spec are not used.
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
