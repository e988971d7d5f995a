package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/call"
)

// maxTerminalDim is the most columns or rows that a terminal has: the kernel keeps them in 16 bits.
const maxTerminalDim = math.MaxUint16

// terminalBody is the size of a terminal as requests give it.
type terminalBody struct {
	Columns int64 `json:"columns" minimum:"1" maximum:"65535" doc:"Characters in a row."`
	Rows    int64 `json:"rows" minimum:"1" maximum:"65535"`
}

// size checks it. Nobody has a terminal of no size, so a member that is left out is a mistake.
func (b *terminalBody) size(m *violations, pointer string) *dray.TerminalSize {
	if b == nil {
		return nil
	}
	for _, side := range []struct {
		name string
		n    int64
	}{{"columns", b.Columns}, {"rows", b.Rows}} {
		if side.n < 1 || side.n > maxTerminalDim {
			m.add(pointer+"/"+side.name, "%d is no number of %s: give 1 to %d", side.n, side.name,
				maxTerminalDim)
		}
	}
	// checked above; with a mistake nobody uses it
	return &dray.TerminalSize{Columns: uint16(b.Columns), Rows: uint16(b.Rows)} //nolint:gosec
}

// resize changes the size of a call's terminal.
func (s *Server) resize(w http.ResponseWriter, r *http.Request) error {
	var b terminalBody
	if err := s.decodeControl(w, r, &b); err != nil {
		return err
	}
	var m violations
	size := b.size(&m, "")
	if err := m.err(); err != nil {
		return err
	}
	call, err := s.callForControl(r)
	if err != nil {
		return err
	}
	if !call.HasTerminal() {
		return noTerminal()
	}
	if err := controlError(call.Control(r.Context(),
		func(p dray.Process) error { return p.Resize(*size) })); err != nil {
		return err
	}
	return reply(w, size)
}

// signalBody is the body of a signal. It is a name or a number, as people write both.
type signalBody struct {
	Signal json.RawMessage `json:"signal" doc:"A name such as SIGINT or INT, or a number from 1 to 64."`
}

// signalReply says which signal was sent.
type signalReply struct {
	Signal dray.Signal `json:"signal"`
}

func (b signalBody) signal() (syscall.Signal, error) {
	if len(b.Signal) == 0 {
		return 0, invalid("/signal", "the request names no signal").
			WithHint("give a name such as SIGINT, or a number from 1 to 64")
	}
	text := string(b.Signal)
	if strings.HasPrefix(text, `"`) {
		name, err := jsontext.AppendUnquote(nil, b.Signal)
		if err != nil {
			return 0, invalid("/signal", "reading the signal: %v", err)
		}
		text = string(name)
	}
	sig, ok := process.ParseSignal(text)
	if !ok {
		return 0, invalid("/signal", "%s is no signal", truncate(string(b.Signal))).
			WithHint("give a number from 1 to 64, or one of %s", strings.Join(process.SignalNames(), ", "))
	}
	return sig, nil
}

// signal sends a signal to the process of a call: to the process that the call started, whichever
// part of it has the terminal. What Ctrl-C sends goes the way of Ctrl-C, through stdin.
func (s *Server) signal(w http.ResponseWriter, r *http.Request) error {
	var b signalBody
	if err := s.decodeControl(w, r, &b); err != nil {
		return err
	}
	sig, err := b.signal()
	if err != nil {
		return err
	}
	call, err := s.callForControl(r)
	if err != nil {
		return err
	}
	if err := controlError(call.Control(r.Context(),
		func(p dray.Process) error { return p.Signal(sig) })); err != nil {
		return err
	}
	return reply(w, signalReply{dray.Signal{Name: process.SignalName(sig), Number: int(sig)}})
}

// decodeControl reads the body of a request that has no parameters.
func (s *Server) decodeControl(w http.ResponseWriter, r *http.Request, v any) error {
	if _, err := query(r); err != nil {
		return err
	}
	return s.decode(w, r, v)
}

// callForControl finds the call of a request that is about its process. One that is in the trail
// alone is over.
func (s *Server) callForControl(r *http.Request) (*call.Call, error) {
	f, err := s.find(r)
	if err == nil && f.call == nil {
		err = call.ErrCallEnded()
	}
	return f.call, err
}

// controlError says what became of telling a process something.
func controlError(err error) error {
	known := (*dray.Error)(nil)
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, dray.ErrNoTerminal):
		return noTerminal()
	default: // it ends just now, or the client is gone and hears nothing
		return dray.Errorf(dray.CodeConflict, "telling the process: %w", err).
			WithHint("GET the invocation tells whether it still runs")
	}
}

func noTerminal() error {
	return dray.Errorf(dray.CodeConflict, "the call has no terminal").
		WithHint("start it with tty: {columns, rows}")
}

// stdinPiece is how much of a long body is handed on at once.
const stdinPiece = 64 << 10

// stdinReply says how many bytes of stdin were taken in all.
type stdinReply struct {
	Accepted int64 `json:"accepted"`
}

// writeStdin passes bytes to the stdin of a running call. A body of at most call.StdinCapacity is taken
// whole or not at all. A longer one is taken piece by piece while the tool reads, and needs an
// offset, because a part of it may be taken when the rest is refused.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "offset", "eof")
	if err != nil {
		return err
	}
	offset, eof, err := parseStdinQuery(q)
	if err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	if f.call == nil || f.call.Stdin() == nil {
		return dray.Errorf(dray.CodeConflict, "the call has no open stdin").
			WithHint("start it with stdin_open, and write before it ends")
	}
	accepted, err := s.copyBody(w, r, f.call.Stdin(), offset, eof)
	if err != nil {
		accepted = f.call.Stdin().Accepted()
		return &httpError{err: err, accepted: &accepted}
	}
	return reply(w, stdinReply{Accepted: accepted})
}

func parseStdinQuery(q url.Values) (offset int64, eof bool, err error) {
	offset = call.StdinAppend
	if text := q.Get("offset"); text != "" {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return 0, false, invalid("", "offset is %q", truncate(text)).
				WithHint("give the number of bytes of stdin before these")
		}
		offset = int64(n)
	}
	switch text := q.Get("eof"); text {
	case "", "0":
		return offset, false, nil
	case "1":
		return offset, true, nil
	default:
		return 0, false, invalid("", "eof is %q", truncate(text)).
			WithHint("give eof=1 with the last bytes, or leave it out")
	}
}

// copyBody writes the body to the pipe and says how much that has taken in all.
func (s *Server) copyBody(w http.ResponseWriter, r *http.Request, pipe *call.StdinPipe, offset int64,
	eof bool,
) (int64, error) {
	body := http.MaxBytesReader(unwrap(w), r.Body, s.cfg.MaxBody)
	first, err := io.ReadAll(io.LimitReader(body, call.StdinCapacity+1))
	if err != nil {
		return 0, s.bodyError(err)
	}
	if len(first) <= call.StdinCapacity {
		return pipe.Append(r.Context(), offset, first, eof)
	}
	if offset == call.StdinAppend {
		return 0, dray.Errorf(dray.CodeTooLarge, "without an offset at most %d bytes are taken at once",
			call.StdinCapacity).
			WithHint("give offset, or send less")
	}
	return s.copyBodyChunks(r.Context(), pipe, io.MultiReader(bytes.NewReader(first), body), offset,
		eof)
}

func (s *Server) copyBodyChunks(ctx context.Context, pipe *call.StdinPipe, body io.Reader, offset int64,
	eof bool,
) (accepted int64, err error) {
	piece := make([]byte, stdinPiece)
	for {
		n, err := io.ReadFull(body, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return accepted, s.bodyError(err)
		}
		if accepted, err = pipe.Append(ctx, offset, piece[:n], eof && last); err != nil || last {
			return accepted, err
		}
		offset += int64(n)
	}
}

// bodyError says why a body could not be read.
func (s *Server) bodyError(err error) error {
	switch {
	case isTooLarge(err):
		return dray.Errorf(dray.CodeTooLarge, "the body is larger than %d bytes", s.cfg.MaxBody).
			WithHint("send it in pieces, each with its offset")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bodyStalledError()
	default:
		return invalid("", "reading the body: %v", err).
			WithHint("send as many bytes as Content-Length says")
	}
}
