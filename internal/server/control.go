package server

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/server/calls"
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
			m.add(pointer+"/"+side.name, "%d is no number of %s: give 1 to %d", side.n, side.name, maxTerminalDim)
		}
	}
	return &dray.TerminalSize{Columns: uint16(b.Columns), Rows: uint16(b.Rows)} //nolint:gosec // checked above; with a mistake nobody uses it
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
	if err := controlError(call.Control(r.Context(), func(p dray.Process) error { return p.Resize(*size) })); err != nil {
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
		return 0, invalid("/signal", "the request names no signal").WithHint("give a name such as SIGINT, or a number from 1 to 64")
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

// signal sends a signal to the process of a call: to the process that the call started, whichever part of it has the terminal. What Ctrl-C sends
// goes the way of Ctrl-C, through stdin.
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
	if err := controlError(call.Control(r.Context(), func(p dray.Process) error { return p.Signal(sig) })); err != nil {
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

// callForControl finds the call of a request that is about its process. One that is in the trail alone is over.
func (s *Server) callForControl(r *http.Request) (*calls.Call, error) {
	f, err := s.find(r)
	if err == nil && f.call == nil {
		err = calls.ErrCallEnded()
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
		return dray.Errorf(dray.CodeConflict, "telling the process: %w", err).WithHint("GET the invocation tells whether it still runs")
	}
}

func noTerminal() error {
	return dray.Errorf(dray.CodeConflict, "the call has no terminal").WithHint("start it with tty: {columns, rows}")
}
