package tool

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/dray-dev/dray"
)

// The environments of this file are the host with one injected fault.

// failingCloseEnv is an environment whose user can neither enter directories named a nor read Go
// files.
type failingCloseEnv struct{ dray.Environment }

func (c failingCloseEnv) Files(ctx context.Context, root string) (dray.Files, error) {
	f, err := c.Environment.Files(ctx, root)
	return closedFiles{f}, err
}

type closedFiles struct{ dray.Files }

func (c closedFiles) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	if strings.HasSuffix(name, ".go") {
		return nil, dray.FileInfo{}, fs.ErrPermission
	}
	return c.Files.Open(name, offset)
}

func (c closedFiles) Walk(ctx context.Context, name string,
	visit func(string, dray.FileInfo) error,
) error {
	return c.Files.Walk(ctx, name, func(name string, info dray.FileInfo) error {
		if path.Base(name) != "a" {
			return visit(name, info)
		}
		info.Refused = dray.Errorf(dray.CodeDenied, "closed")
		if err := visit(name, info); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// stallingEnv is an environment whose files never reach end of file. It reports each read.
type stallingEnv struct {
	dray.Environment
	read func()
}

func (s stallingEnv) Files(ctx context.Context, root string) (dray.Files, error) {
	f, err := s.Environment.Files(ctx, root)
	return stalledFiles{f, s.read}, err
}

type stalledFiles struct {
	dray.Files
	read func()
}

func (s stalledFiles) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	f, info, err := s.Files.Open(name, offset)
	if err != nil {
		return nil, info, err
	}
	_ = f.Close()
	r, _ := io.Pipe()
	return stalledFile{r, s.read}, info, nil
}

type stalledFile struct {
	*io.PipeReader
	read func()
}

func (s stalledFile) Read(p []byte) (int, error) {
	s.read()
	return s.PipeReader.Read(p)
}

// racingWriteEnv is an environment in which another process changes a file as soon as a temporary
// file is created.
type racingWriteEnv struct {
	dray.Environment
	change func() error
}

func (m racingWriteEnv) Files(ctx context.Context, root string) (dray.Files, error) {
	f, err := m.Environment.Files(ctx, root)
	return meddledFiles{f, m.change}, err
}

type meddledFiles struct {
	dray.Files
	change func() error
}

func (m meddledFiles) Create(name string, mode fs.FileMode) (io.WriteCloser, error) {
	if err := m.change(); err != nil {
		return nil, err
	}
	return m.Files.Create(name, mode)
}

// agentLossEnv is an environment whose agent is lost during a rename.
type agentLossEnv struct{ dray.Environment }

func (l agentLossEnv) Files(ctx context.Context, root string) (dray.Files, error) {
	f, err := l.Environment.Files(ctx, root)
	return lostFiles{f}, err
}

type lostFiles struct{ dray.Files }

func (l lostFiles) Rename(string, string) error {
	return dray.Errorf(dray.CodeAgentLost, "the helper went")
}

// dirSwapEnv is an environment in which another process exchanges a directory for a symlink while a
// file in it is renamed, and for a moment after.
type dirSwapEnv struct {
	dray.Environment
	folder string
}

func (e dirSwapEnv) Files(ctx context.Context, root string) (dray.Files, error) {
	f, err := e.Environment.Files(ctx, root)
	return &exchangedFiles{f, e.folder, 3}, err
}

type exchangedFiles struct {
	dray.Files
	folder string
	left   int // removals until it is back
}

func (e *exchangedFiles) Rename(from, to string) error {
	if err := errors.Join(os.Rename(e.folder, e.folder+".away"),
		os.Symlink("/etc", e.folder)); err != nil {
		return err
	}
	return e.Files.Rename(from, to)
}

func (e *exchangedFiles) Remove(name string) error {
	if e.left--; e.left == 0 {
		if err := errors.Join(os.Remove(e.folder), os.Rename(e.folder+".away", e.folder)); err != nil {
			return err
		}
	}
	return e.Files.Remove(name)
}
