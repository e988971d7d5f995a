package python

import (
	"io"

	"github.com/dray-dev/dray"
)

// execution is a request that runs on a conn. It implements [Execution].
type execution struct {
	conn    *conn
	request uint32
	globals []string // the names that the reply may have

	stdin          *bodyWriter
	stdout, stderr pipe
	changes        *changes // nil if the request may send none
	changesEnded   bool
	call           assembly
	broker         *broker  // nil if the runtime has none
	answer         assembly // the reply as it arrives

	done  chan struct{} // closed when reply and err are set
	reply Reply
	err   error
}

// pipe passes on what the worker writes. A write blocks until its bytes are read, so a slow reader
// stops the worker.
type pipe struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newPipe() pipe {
	r, w := io.Pipe()
	return pipe{r, w}
}

func newExecution(c *conn, request uint32, globals []string, changes *changes) *execution {
	e := &execution{
		conn: c, request: request, globals: globals,
		stdout: newPipe(), stderr: newPipe(), changes: changes,
		call: assembly{limit: maxCall}, answer: assembly{limit: maxReply},
		done: make(chan struct{}),
	}
	e.stdin = &bodyWriter{execution: e, part: kindStdin, last: kindStdinEnd, size: maxStdin}
	return e
}

// end sets the result. Its caller has detached the execution from the conn.
func (e *execution) end(reply Reply, err error) {
	e.reply, e.err = reply, err
	if e.changes != nil {
		e.changes.abort() // no effect after the last frame
	}
	_ = e.stdout.w.Close()
	_ = e.stderr.w.Close()
	close(e.done)
}

// Stdin returns the stdin of the code. Write blocks until the bytes are written to the worker, and
// fails with io.ErrClosedPipe after the end of the request.
func (e *execution) Stdin() io.WriteCloser { return e.stdin }

// Output returns what the code writes to a stream.
func (e *execution) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return e.stderr.r
	}
	return e.stdout.r
}

// Interrupt raises KeyboardInterrupt in the code. It does not block.
func (e *execution) Interrupt() {
	e.conn.out.interrupt(message{request: e.request, last: kindInterrupt, until: e.done})
}

// Done is closed when the request has ended.
func (e *execution) Done() <-chan struct{} { return e.done }

// Reply returns the checked reply after Done.
func (e *execution) Reply() (Reply, error) { return e.reply, e.err }

// answerCall sends the result of a brokered call. It does not block, and does nothing after the end
// of the request.
func (e *execution) answerCall(body []byte) {
	e.conn.out.add(message{
		request: e.request, part: kindResult, last: kindResultEnd, body: body, until: e.done,
	})
}

// receiveFiles receives a part of the files that changed.
func (e *execution) receiveFiles(h header) error {
	if e.changes == nil || e.changesEnded {
		return protocolError("it sent files unexpectedly")
	}
	if err := e.conn.frames.copyTo(e.changes.in.w, h.body); err != nil {
		return err
	}
	if h.kind != kindChangedEnd {
		return e.changes.violated()
	}
	e.changesEnded = true
	return e.changes.end()
}

// receiveCall receives a part of a brokered call.
func (e *execution) receiveCall(h header) error {
	if e.broker == nil {
		return protocolError("it made a call, which this runtime does not support")
	}
	if err := e.call.add(e.conn.frames, h); err != nil {
		return err
	}
	if h.kind == kindCallEnd {
		return e.broker.receive(e.call.take())
	}
	return nil
}

// receiveReply receives a part of the reply. The last one ends the request.
func (e *execution) receiveReply(h header) error {
	if err := e.answer.add(e.conn.frames, h); err != nil {
		return err
	}
	if h.kind == kindReply {
		return nil
	}
	reply, err := checkReply(e.answer.take(), e.globals)
	if err != nil {
		return err
	}
	reply.CPULimit = h.kind == kindCPULimit
	if e.changes != nil && !e.changesEnded && (reply.Error == nil ||
		reply.Error.Code != string(dray.CodeLimitExceeded)) {
		return protocolError("it sent no tree of changed files before its reply")
	}
	e.conn.finish(e, reply)
	return nil
}
