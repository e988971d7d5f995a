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

// told is a step on its way from the helper.
type told struct {
	step
	refused *failure
}

func packTold(f *pack.Fields, t *told) {
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
	handle, err := s.keep(w)
	if err != nil {
		return response{}, nil, err
	}
	return s.walkOn(handle, maxDepth)
}

// walkOn tells the next steps of a walk; what lies deeper than depth, up to the next step that does not, is passed over. A walk that is over
// is closed.
func (s *server) walkOn(handle, depth int) (response, []byte, error) {
	w, ok := s.open[handle].(*walker)
	if !ok {
		return response{}, nil, errNoHandle
	}
	w.skip(max(depth, 0))
	resp := response{Handle: handle}
	for size := 0; len(resp.Steps) < maxBatch && size < maxListing; {
		next, err := w.next()
		if errors.Is(err, io.EOF) {
			resp.EOF = true
			return resp, nil, s.drop(handle)
		}
		if err != nil {
			_ = s.drop(handle)
			return response{}, nil, err
		}
		t := told{step: next}
		if why := next.info.Refused; why != nil {
			t.refused = toFailure(why)
		}
		resp.Steps = append(resp.Steps, t)
		size += len(next.info.Name)
	}
	return resp, nil, nil
}

// Walk visits what lies beneath a name, as dray.Files has it.
func (c *Client) Walk(ctx context.Context, name string, visit func(name string, info dray.FileInfo) error) error {
	w := &remoteWalk{client: c}
	if err := w.take(request{Op: opWalk, Name: name}); err != nil {
		return err
	}
	err := drive(ctx, clean(name), w, visit)
	if !w.over {
		err = errors.Join(err, handle{c, w.id}.Close())
	}
	return err
}

// remoteWalk are the steps that a helper tells.
type remoteWalk struct {
	client *Client
	id     int
	batch  []told
	over   bool // the helper has closed the walk
	trail  trail
	kept   int // what is deeper than this is passed over
}

func (w *remoteWalk) take(req request) error {
	resp, _, err := w.client.call(req, nil)
	if err != nil {
		w.over = true
		return err
	}
	w.id, w.batch, w.over, w.kept = resp.Handle, resp.Steps, resp.EOF, maxDepth
	if len(w.batch) == 0 && !w.over {
		return lost(io.ErrNoProgress)
	}
	return nil
}

func (w *remoteWalk) next() (step, error) {
	for {
		for len(w.batch) == 0 {
			if w.over {
				return step{}, io.EOF
			}
			if err := w.take(request{Op: opWalkOn, Handle: w.id, Limit: w.kept}); err != nil {
				return step{}, err
			}
		}
		s, why := w.batch[0].step, w.batch[0].refused
		w.batch = w.batch[1:]
		if why != nil {
			s.info.Refused = refusal(why.err())
		}
		if err := w.trail.follow(s); err != nil {
			return step{}, lost(fmt.Errorf("a step of its walk is none: %w", err))
		}
		if s.depth <= w.kept {
			w.kept = maxDepth
			return s, nil
		}
	}
}

func (w *remoteWalk) skip(depth int) {
	w.kept = depth // the helper hears of it when it is asked for more
}
