package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

// control serves the requests that affect the process of a running call.
type control struct {
	finder
	bodies *bodyReader
}

// resize changes the size of the terminal of a call.
func (h *control) resize(w http.ResponseWriter, r *http.Request) error {
	var req call.TerminalSize
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	var v validate.Violations
	size := req.Size(&v, "")
	if err := v.Err(); err != nil {
		return err
	}
	c, err := h.running(r)
	if err != nil {
		return err
	}
	if !c.HasTerminal() {
		return noTerminal()
	}
	if err := apply(r, c, func(p dray.Process) error { return p.Resize(*size) }); err != nil {
		return err
	}
	return reply(w, req)
}

// signalRequest is the body of a signal: a name or a number.
type signalRequest struct {
	Signal json.RawMessage `json:"signal" doc:"A name such as SIGINT or INT, or a number from 1 to 64."`
}

// signalReply is the signal that was sent.
type signalReply struct {
	Signal dray.Signal `json:"signal"`
}

func (b signalRequest) parse() (syscall.Signal, error) {
	if len(b.Signal) == 0 {
		return 0, invalid("/signal", "a signal is required").
			WithHint("send a name such as SIGINT, or a number from 1 to 64")
	}
	text := string(b.Signal)
	if strings.HasPrefix(text, `"`) {
		name, err := jsontext.AppendUnquote(nil, b.Signal)
		if err != nil {
			return 0, invalid("/signal", "invalid signal: %v", err)
		}
		text = string(name)
	}
	sig, ok := process.ParseSignal(text)
	if !ok {
		return 0, invalid("/signal", "unknown signal %s", validate.Quote(string(b.Signal))).
			WithHint("use a number from 1 to 64, or one of %s", strings.Join(process.SignalNames(), ", "))
	}
	return sig, nil
}

// signal sends a signal to the process that the call started. Signals of the terminal, such as that
// of Ctrl-C, are sent by writing the control character to stdin.
func (h *control) signal(w http.ResponseWriter, r *http.Request) error {
	var req signalRequest
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	sig, err := req.parse()
	if err != nil {
		return err
	}
	c, err := h.running(r)
	if err != nil {
		return err
	}
	if err := apply(r, c, func(p dray.Process) error { return p.Signal(sig) }); err != nil {
		return err
	}
	return reply(w, signalReply{dray.Signal{Name: process.SignalName(sig), Number: int(sig)}})
}

// running returns the call of a request. It fails with conflict for a call that only the audit log
// has, which has ended.
func (h *control) running(r *http.Request) (*call.Call, error) {
	found, err := h.find(r)
	if err == nil && found.call == nil {
		err = call.ErrCallEnded()
	}
	return found.call, err
}

// apply calls do with the process of a call. Its errors have a code.
func apply(r *http.Request, c *call.Call, do func(dray.Process) error) error {
	err := c.Control(r.Context(), do)
	switch known := (*dray.Error)(nil); {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, dray.ErrNoTerminal):
		return noTerminal()
	default: // the process is exiting, or the client has disconnected
		return dray.Errorf(dray.CodeConflict, "control the process: %w", err).
			WithHint("see GET /v1/invocations/ID for whether the call still runs")
	}
}

func noTerminal() error {
	return dray.Errorf(dray.CodeConflict, "the call has no terminal").
		WithHint("start the call with tty: {columns, rows}")
}

// stdinChunk is the size in bytes of one write of a long body.
const stdinChunk = 64 << 10

// stdinReply is the number of bytes written to stdin so far.
type stdinReply struct {
	Accepted int64 `json:"accepted"`
}

// writeStdin writes a body to the stdin of a running call. A body of at most call.StdinCapacity is
// written completely or not at all. A longer one is written in chunks while the tool reads. It
// needs an offset, because it may fail after a part of it was written.
func (h *control) writeStdin(w http.ResponseWriter, r *http.Request) error {
	offset, eof, err := parseStdinQuery(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := h.find(r)
	if err != nil {
		return err
	}
	if found.call == nil || found.call.Stdin() == nil {
		return dray.Errorf(dray.CodeConflict, "the stdin of the call cannot be written").
			WithHint("start the call with stdin_open, and write before it ends")
	}
	pipe := found.call.Stdin()
	written, err := h.copyBody(w, r, pipe, offset, eof)
	if err != nil {
		written = pipe.Written()
		return &httpError{err: err, accepted: &written}
	}
	return reply(w, stdinReply{Accepted: written})
}

func parseStdinQuery(q url.Values) (offset int64, eof bool, err error) {
	offset = call.StdinAppend
	if text := q.Get("offset"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n > maxExact {
			return 0, false, invalid("", "invalid offset %q", validate.Quote(text)).
				WithHint("send the number of bytes of stdin before these")
		}
		offset = int64(n)
	}
	switch text := q.Get("eof"); text {
	case "", "0":
		return offset, false, nil
	case "1":
		return offset, true, nil
	default:
		return 0, false, invalid("", "invalid eof %q", validate.Quote(text)).
			WithHint("send eof=1 with the last bytes, or omit it")
	}
}

// copyBody writes the body to the pipe and returns the number of bytes written so far.
func (h *control) copyBody(w http.ResponseWriter, r *http.Request, pipe *call.StdinPipe,
	offset int64, eof bool,
) (int64, error) {
	body := http.MaxBytesReader(unwrap(w), r.Body, h.bodies.max)
	first, err := io.ReadAll(io.LimitReader(body, call.StdinCapacity+1))
	if err != nil {
		return 0, h.bodies.error(err)
	}
	if len(first) <= call.StdinCapacity {
		return pipe.Append(r.Context(), offset, first, eof)
	}
	if offset == call.StdinAppend {
		return 0, dray.Errorf(dray.CodeTooLarge, "a body of more than %d bytes requires an offset",
			call.StdinCapacity).WithHint("send offset, or send less")
	}
	return h.copyChunks(r, pipe, io.MultiReader(bytes.NewReader(first), body), offset, eof)
}

func (h *control) copyChunks(r *http.Request, pipe *call.StdinPipe, body io.Reader, offset int64,
	eof bool,
) (written int64, err error) {
	chunk := make([]byte, stdinChunk)
	for {
		n, err := io.ReadFull(body, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return written, h.bodies.error(err)
		}
		written, err = pipe.Append(r.Context(), offset, chunk[:n], eof && last)
		if err != nil || last {
			return written, err
		}
		offset += int64(n)
	}
}
