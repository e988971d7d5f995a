package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/moby/moby/client"
)

// The engine's framing of an exec without a terminal: stream, three zero bytes, length, payload.
const (
	engineHeader = 8
	engineStdout = 1
	engineStderr = 2
)

// execStream is the hijacked stdio of one exec.
type execStream struct {
	id     string
	hijack client.HijackedResponse
	r      *bufio.Reader

	raw    bool   // a terminal's: one stream without frames
	left   uint32 // of the current frame
	stream byte

	mu     sync.Mutex
	stderr []byte // the first of what came on stderr, for an error's text
}

// openExec creates and starts an exec.
func (e *Engine) openExec(ctx context.Context, id string,
	opts client.ExecCreateOptions,
) (*execStream, error) {
	opts.AttachStdin, opts.AttachStdout, opts.AttachStderr = true, true, true
	created, err := e.api.ExecCreate(ctx, id, opts)
	if err != nil {
		return nil, err
	}
	res, err := e.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{TTY: opts.TTY})
	if err != nil {
		return nil, err
	}
	return &execStream{
		id: created.ID, hijack: res.HijackedResponse,
		r: bufio.NewReaderSize(res.Reader, readAhead), raw: opts.TTY,
	}, nil
}

// next reads the header of the next frame, unless one is being read.
func (a *execStream) next() error {
	for a.left == 0 {
		var h [engineHeader]byte
		if _, err := io.ReadFull(a.r, h[:]); err != nil {
			return err
		}
		a.stream, a.left = h[0], binary.BigEndian.Uint32(h[4:])
		if a.stream > engineStderr {
			return errors.New("the engine's stream is not framed as it should be")
		}
	}
	return nil
}

// read reads the rest of a frame and says which stream it belongs to.
func (a *execStream) read(p []byte) (stream byte, n int, err error) {
	if a.raw {
		n, err = a.r.Read(p)
		return engineStdout, n, err
	}
	if err := a.next(); err != nil {
		return 0, 0, err
	}
	n, err = a.r.Read(p[:min(len(p), int(a.left))])
	a.left -= uint32(n) //nolint:gosec // at most left
	return a.stream, n, err
}

// readAhead holds several of the engine's frames, of 32 KiB each: the library's own reader would
// take each in parts of 4 KiB and the rest.
const readAhead = 128 << 10

// maxStderr bounds what is kept of an agent's stderr.
const maxStderr = 4 << 10

// Read gives stdout alone; what comes on stderr is kept for error texts.
func (a *execStream) Read(p []byte) (int, error) {
	for {
		stream, n, err := a.read(p)
		if stream != engineStderr || err != nil {
			return n, err
		}
		a.mu.Lock()
		a.stderr = append(a.stderr, p[:min(n, maxStderr-len(a.stderr))]...)
		a.mu.Unlock()
	}
}

func (a *execStream) stderrText() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(a.stderr)
}

// Write writes to stdin.
func (a *execStream) Write(p []byte) (int, error) { return a.hijack.Conn.Write(p) }

// Close lets go of the exec. Its process is not ended by that; an agent ends itself.
func (a *execStream) Close() error { return a.hijack.Conn.Close() }
