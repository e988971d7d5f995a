package python

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// changes receives the files that a run has changed, as a tree. A process that user code controls
// sends it. Contents go to a file that has no name.
type changes struct {
	in   pipe
	dir  string // for the file
	done chan struct{}

	// The fields below are set when done is closed.
	list      []change
	content   *os.File // nil if there is none
	failure   error    // why nothing may be committed, although the tree was complete
	violation error    // of the protocol; nil for a tree that has ended as it should
	closing   sync.Once
}

// change is an entry of the tree.
type change struct {
	name    string
	removed bool
	dir     bool
	mode    fs.FileMode
	size    int64
	offset  int64 // in the content
	sum     string
}

// newChanges returns a receiver that reads until its pipe ends. The caller calls close.
func newChanges(dir string) *changes {
	c := &changes{in: newPipe(), dir: dir, done: make(chan struct{})}
	go c.receive()
	return c
}

// end ends the stream. It blocks until all that came was read, and returns the violation.
func (c *changes) end() error {
	_ = c.in.w.Close()
	<-c.done
	return c.violation
}

// abort ends the stream early. It has no effect after end.
func (c *changes) abort() { _ = c.in.w.CloseWithError(io.ErrUnexpectedEOF) }

// violated returns the violation as soon as it is known.
func (c *changes) violated() error {
	select {
	case <-c.done:
		return c.violation
	default:
		return nil
	}
}

// close ends the stream and removes the contents. It may be called more than once.
func (c *changes) close() {
	c.abort()
	<-c.done
	c.closing.Do(func() {
		if c.content != nil {
			_ = c.content.Close()
		}
	})
}

func (c *changes) receive() {
	defer close(c.done)
	defer func() { _ = c.in.r.Close() }()
	in := bufio.NewReaderSize(c.in.r, 64<<10)
	t := tree.NewReaderAny(in, dray.TreeLimits{
		// Removed names count, and so do directories that only parents of changed files.
		MaxFile: MaxFile, MaxTotal: MaxFiles, MaxFiles: 3 * MaxEntries,
	})
	err := c.entries(t)
	switch {
	case err == nil:
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			c.violation = protocolError("it sent bytes after the tree of changed files")
		}
	case t.Complete():
		c.failure = changesError(err)
	default:
		c.violation = protocolError("it sent a wrong tree of changed files: %s", treeProblem(err))
	}
}

// changesError returns the error of a tree that the worker has aborted.
func changesError(err error) error {
	e := dray.AsError(err)
	hint := "write large results in parts, one run each, or use the runtime " + RuntimeContainer
	if e.Code != dray.CodeLimitExceeded {
		hint = "write results below the working directory"
	}
	return dray.Errorf(e.Code, "no change of a file was kept: %s", e.Message).WithHint("%s", hint)
}

// treeProblem returns the text of an error of a tree. The wrapping error speaks of containers.
func treeProblem(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (c *changes) entries(t *tree.Reader) error {
	for {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.Count(e.Name, "/") > maxNesting {
			return fmt.Errorf("%.200q is in more than %d directories", e.Name, maxNesting)
		}
		one := change{name: e.Name, dir: e.Type == "directory", mode: e.Mode.Perm(), size: e.Size}
		switch {
		case e.Refused != nil && e.Refused.Code == dray.CodeNotFound:
			one.removed = true
		case e.Refused != nil:
			c.fail(dray.Errorf(dray.CodePathInvalid, "the code has made %q, which is a %s", e.Name,
				e.Refused.Message).WithHint("code can make regular files and directories only"))
			continue
		case e.Offset != 0:
			return fmt.Errorf("%.200q starts at byte %d", e.Name, e.Offset)
		case !one.dir:
			if err := c.file(t, &one); err != nil {
				return err
			}
		}
		c.list = append(c.list, one)
	}
}

// fail records why nothing may be committed: the first reason.
func (c *changes) fail(err error) {
	if c.failure == nil {
		c.failure = err
	}
}

// file stores the content of a file. What fails on the daemon's side is no fault of the worker.
func (c *changes) file(t io.Reader, one *change) error {
	h := sha256.New()
	var stored io.Writer = h
	if c.failure == nil && c.open() {
		stored = io.MultiWriter(h, c.content)
		one.offset, _ = c.content.Seek(0, io.SeekCurrent)
	}
	w := &errorKeeper{w: stored}
	if _, err := io.Copy(w, t); err != nil {
		return err
	}
	if w.err != nil {
		c.fail(storeError(w.err))
	}
	one.sum = hex.EncodeToString(h.Sum(nil))
	return nil
}

func storeError(err error) error {
	return dray.Errorf(dray.CodeDiskFull, "store the changed files: %w", err).
		WithHint("free disk space in the state directory of the daemon, then repeat the call")
}

// open makes the file for contents, and reports whether there is one.
func (c *changes) open() bool {
	if c.content != nil {
		return true
	}
	f, err := os.CreateTemp(c.dir, "changes-")
	if err == nil {
		err = os.Remove(f.Name())
		c.content = f
	}
	if err != nil {
		c.fail(storeError(err))
	}
	return c.content != nil
}

// errorKeeper never fails, so that the stream is read to its end.
type errorKeeper struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (k *errorKeeper) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.w.Write(p)
	}
	return len(p), nil
}
