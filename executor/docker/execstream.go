package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/moby/moby/client"
)

// The engine's frames of an exec without a terminal: stream, three zero bytes, length, payload.
const (
	engineHeader = 8
	engineStdout = 1
	engineStderr = 2
)

// execStream is the stdio of one exec.
type execStream struct {
	id     string
	hijack client.HijackedResponse
	r      *bufio.Reader

	raw    bool   // of a terminal: one stream without frames
	left   uint32 // bytes of the current frame
	stream byte

	mu     sync.Mutex
	stderr []byte // its beginning, for error texts
}

// openExec creates and starts an exec.
func (e *Engine) openExec(ctx context.Context, id string, opts client.ExecCreateOptions,
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

// nextFrame reads the header of the next frame if the current one was read.
func (s *execStream) nextFrame() error {
	for s.left == 0 {
		var h [engineHeader]byte
		if _, err := io.ReadFull(s.r, h[:]); err != nil {
			return err
		}
		s.stream, s.left = h[0], binary.BigEndian.Uint32(h[4:])
		if s.stream > engineStderr {
			return errors.New("invalid frame in the engine's stream")
		}
	}
	return nil
}

// read reads a part of a frame and returns the stream that it belongs to.
func (s *execStream) read(p []byte) (stream byte, n int, err error) {
	if s.raw {
		n, err = s.r.Read(p)
		return engineStdout, n, err
	}
	if err := s.nextFrame(); err != nil {
		return 0, 0, err
	}
	n, err = s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n) //nolint:gosec // at most left
	return s.stream, n, err
}

// readAhead holds several of the engine's frames of 32 KiB. The library's own reader would read
// each in several parts.
const readAhead = 128 << 10

// maxStderr bounds the part of stderr that is kept for error texts.
const maxStderr = 4 << 10

// Read reads stdout. It keeps the beginning of stderr.
func (s *execStream) Read(p []byte) (int, error) {
	for {
		stream, n, err := s.read(p)
		if stream != engineStderr || err != nil {
			return n, err
		}
		s.mu.Lock()
		s.stderr = append(s.stderr, p[:min(n, maxStderr-len(s.stderr))]...)
		s.mu.Unlock()
	}
}

// Stderr returns the beginning of stderr.
func (s *execStream) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.stderr)
}

// Write writes to stdin.
func (s *execStream) Write(p []byte) (int, error) { return s.hijack.Conn.Write(p) }

// Close closes the connection. The process of the exec goes on.
func (s *execStream) Close() error { return s.hijack.Conn.Close() }
