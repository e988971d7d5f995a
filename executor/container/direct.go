package container

import (
	"context"
	"errors"
	"io"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// containerFiles are the files of a container: what its helper serves, and trees that are read directly where this daemon may.
type containerFiles struct {
	*files.Client
	env    *environment
	helper *agentProcess
	root   string
}

// ReadTree reads the tree through the root folder of the agent's process where that is open to us, with the rights of the helper and no
// others, and else lets the helper stream it. Both give the same.
func (f *containerFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	log := f.env.engine.log.With(zap.String("container", f.env.target.Container.Name), zap.String("root", f.root))
	t, err := f.readDirect(ctx, what)
	if err == nil {
		log.Debug("files are read directly")
		return t, nil
	}
	log.Debug("files are streamed by the helper", zap.Error(err))
	t, err = f.Client.ReadTree(ctx, what)
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

// errDirectUnsupported says that direct reading was not wanted, or cannot be thought of.
var errDirectUnsupported = errors.New("the container's files are not to be read directly")

// readDirect fails wherever anything is unusual: the helper can do all that it can.
func (f *containerFiles) readDirect(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	pid := f.helper.agent.pid
	if f.env.engine.opts.FilesByHelper || pid == 0 || os.Geteuid() != 0 {
		return nil, errDirectUnsupported
	}
	v, err := openProcRoot(f.env.target.Container, pid)
	if err != nil {
		return nil, err
	}
	defer v.close()
	r, err := v.credentialsOf(f.helper.pid)
	if err != nil {
		return nil, err
	}
	return files.ReadTreeOnThread(ctx, what, func() (*os.File, error) {
		if err := r.applyToThread(); err != nil {
			return nil, err
		}
		root, err := v.open(f.root, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = v.requirePlainFS(root, what.Names)
		}
		if err != nil {
			closeFile(root)
			return nil, err
		}
		return root, nil
	})
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
