package container

import (
	"context"
	"errors"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// containerFiles are the files of a container as its helper process serves them.
type containerFiles struct {
	*files.Client
	env    *environment
	helper *agentProcess
}

// ReadTree returns the tree that the helper streams.
func (f *containerFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree,
	error,
) {
	t, err := f.Client.ReadTree(ctx, what)
	if err != nil {
		return nil, err
	}
	return &lossTree{t, f.lost}, nil
}

// lost gives a stream that broke off its reason, where the agent went with it.
func (f *containerFiles) lost(err error) error {
	cause := f.helper.agent.mux.Err()
	if cause == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return f.env.engine.lossError(f.env.target.Container, cause)
}

// lossTree is a tree whose errors are looked into.
type lossTree struct {
	dray.Tree
	lost func(error) error
}

// Next goes to the next entry.
func (t *lossTree) Next() (dray.TreeEntry, error) {
	e, err := t.Tree.Next()
	return e, t.explain(err)
}

// Read reads the current file.
func (t *lossTree) Read(p []byte) (int, error) {
	n, err := t.Tree.Read(p)
	return n, t.explain(err)
}

func (t *lossTree) explain(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a tree's end is never wrapped
		return err
	}
	return t.lost(err)
}
