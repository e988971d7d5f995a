package files

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// place takes the tree that follows its request. An error means that the client cannot be answered any more.
func (s *server) place(r *bufio.Reader, out io.Writer, req request) error {
	ctx := context.Background() // the daemon ends the stream, or this process, where it wants no more
	if !req.DryRun {
		_, _ = s.local.Recover(ctx) // what cannot be finished there is no reason not to place this
	}
	t := tree.NewReaderAny(r, dray.TreeLimits{})
	placed, err := s.local.WriteTree(ctx, t, dray.WriteTreeOptions{Executable: req.Executable, DryRun: req.DryRun})
	if err != nil {
		if err := writeMessage(out, &response{Error: toFailure(err)}, packResponse, nil); err != nil {
			return err
		}
		return rest(t)
	}
	for more := true; more; {
		n := min(len(placed), MaxList)
		resp := response{More: n < len(placed)}
		for _, p := range placed[:n] {
			resp.Outcomes = append(resp.Outcomes, outcomeOf(p))
		}
		if err := writeMessage(out, &resp, packResponse, nil); err != nil {
			return err
		}
		placed, more = placed[n:], resp.More
	}
	return nil
}

// rest reads what is left of a tree that is not wanted, so that the next request follows.
func rest(t *tree.Reader) error {
	for !t.Complete() {
		if _, err := t.Next(); err != nil && !t.Complete() {
			return errors.Join(errors.New("the rest of a tree"), err)
		}
	}
	return nil
}
