package files

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/dray-dev/dray/executor/files/tree"
)

// collect streams a tree. An error means that the client cannot be answered any more.
func (s *server) collect(r *bufio.Reader, out io.Writer) error {
	what, err := tree.ReadRequest(r)
	if err != nil {
		return err
	}
	t, err := s.local.ReadTree(context.Background(), what) // the daemon ends this process where it wants no more
	if err != nil {
		return writeMessage(out, &response{Error: toFailure(err)}, packResponse, nil)
	}
	defer func() { _ = t.Close() }()
	if err := writeMessage(out, &response{}, packResponse, nil); err != nil {
		return err
	}
	if broken, ok := errors.AsType[*tree.WriteError](tree.Send(out, t)); ok {
		return broken
	}
	return nil // whatever else ended the tree was told
}
