package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// maxBatch is how many steps of a walk travel in one message.
const maxBatch = 1000

// wireStep is a step on its way from the helper.
type wireStep struct {
	step
	refused *wireError
}

func packTold(f *pack.Fields, t *wireStep) {
	pack.Int(f, &t.depth)
	packInfo(f, &t.info)
	pack.Optional(f, &t.refused, packFailure)
}

// walk begins a walk, and tells its first steps.
func (s *server) walk(name string) (response, []byte, error) {
	w, err := s.local.walker(name)
	if err != nil {
		return response{}, nil, err
	}
	handle, err := s.addHandle(w)
	if err != nil {
		return response{}, nil, err
	}
	return s.walkNext(handle, maxDepth)
}

// walkNext tells the next steps of a walk; what lies deeper than depth, up to the next step that
// does not, is passed over. A walk that is over is closed.
func (s *server) walkNext(handle, depth int) (response, []byte, error) {
	w, ok := s.open[handle].(*walker)
	if !ok {
		return response{}, nil, errNoHandle
	}
	w.skip(max(depth, 0))
	resp := response{Handle: handle}
	for size := 0; len(resp.WalkSteps) < maxBatch && size < maxListing; {
		next, err := w.next()
		if errors.Is(err, io.EOF) {
			resp.EOF = true
			return resp, nil, s.closeHandle(handle)
		}
		if err != nil {
			_ = s.closeHandle(handle)
			return response{}, nil, err
		}
		t := wireStep{step: next}
		if why := next.info.Refused; why != nil {
			t.refused = toFailure(why)
		}
		resp.WalkSteps = append(resp.WalkSteps, t)
		size += len(next.info.Name)
	}
	return resp, nil, nil
}

// Walk visits what lies beneath a name, as dray.Files has it.
func (c *Client) Walk(ctx context.Context, name string,
	visit func(name string, info dray.FileInfo) error,
) error {
	w := &remoteWalk{client: c}
	if err := w.take(request{Op: opWalk, Name: name}); err != nil {
		return err
	}
	err := runWalk(ctx, clean(name), w, visit)
	if !w.done {
		err = errors.Join(err, handle{c, w.id}.Close())
	}
	return err
}

// remoteWalk are the steps that a helper tells.
type remoteWalk struct {
	client    *Client
	id        int
	batch     []wireStep
	done      bool // the helper has closed the walk
	trail     orderChecker
	skipDepth int // what is deeper than this is passed over
}

func (w *remoteWalk) take(req request) error {
	resp, _, err := w.client.call(req, nil)
	if err != nil {
		w.done = true
		return err
	}
	w.id, w.batch, w.done, w.skipDepth = resp.Handle, resp.WalkSteps, resp.EOF, maxDepth
	if len(w.batch) == 0 && !w.done {
		return lost(io.ErrNoProgress)
	}
	return nil
}

func (w *remoteWalk) next() (step, error) {
	for {
		for len(w.batch) == 0 {
			if w.done {
				return step{}, io.EOF
			}
			if err := w.take(request{Op: opWalkOn, Handle: w.id, Limit: w.skipDepth}); err != nil {
				return step{}, err
			}
		}
		s, why := w.batch[0].step, w.batch[0].refused
		w.batch = w.batch[1:]
		if why != nil {
			s.info.Refused = refusal(why.err())
		}
		if err := w.trail.check(s); err != nil {
			return step{}, lost(fmt.Errorf("a step of its walk is none: %w", err))
		}
		if s.depth <= w.skipDepth {
			w.skipDepth = maxDepth
			return s, nil
		}
	}
}

func (w *remoteWalk) skip(depth int) {
	w.skipDepth = depth // the helper hears of it when it is asked for more
}
