package tree_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// A wrapped io.EOF of an agent is not the end of a tree, neither for a reader nor for a sender.
func TestWrappedEOFIsNotTheEnd(t *testing.T) {
	lost := dray.Errorf(dray.CodeAgentLost, "the agent is lost: %w", io.EOF).WithHint("repeat it")
	r := tree.NewReaderAny(bufio.NewReader(iotest.ErrReader(lost)), dray.TreeLimits{})
	if _, err := r.Next(); errors.Is(err, io.EOF) || dray.CodeOf(err) != dray.CodeAgentLost ||
		dray.AsError(err).Hint != lost.Hint {
		t.Errorf("got %v", err)
	}
	var sent bytes.Buffer
	if err := tree.Send(&sent, &made{err: lost}); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	r = tree.NewReaderAny(bufio.NewReader(&sent), dray.TreeLimits{})
	if _, err := r.Next(); err == nil || err == io.EOF { //nolint:errorlint // the end of the tree is not wrapped
		t.Errorf("got %v", err)
	}
}
