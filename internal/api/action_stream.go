package api

import (
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/workspace"
)

// progressFunc reports what an action does now.
type progressFunc = func(phase, message string)

// actionEnd is the body of the end event of an action: its result or its error.
type actionEnd struct {
	Workspace *workspace.Info    `json:"workspace,omitempty"`
	Pruned    *audit.PruneReport `json:"pruned,omitempty"`
	Error     *dray.Error        `json:"error,omitempty"`
}

// streamAction runs an action and responds with its progress. An error before any progress is an
// error response; a later one is in the end event.
func streamAction(w http.ResponseWriter, r *http.Request, format string,
	act func(progressFunc) (actionEnd, error),
) error {
	p := &progressStream{
		log:    eventlog.NewLog(noOutput),
		stream: func(reader *eventlog.Reader) { stream(w, r, reader, format) },
	}
	defer p.end([]byte("{}")) // after a panic
	end, err := act(p.progress)
	switch {
	case err != nil && p.done == nil:
		return err
	case err != nil:
		end = actionEnd{Error: dray.AsError(err)}
	}
	body, err := encode(end)
	if err != nil {
		return err
	}
	p.once.Do(p.begin)
	p.end(body)
	return nil
}

func noOutput(dray.Stream) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist }

// progressStream sends progress in its own goroutine, so that a slow client does not delay the
// action. The goroutine starts with the first progress.
type progressStream struct {
	log    *eventlog.Log
	stream func(*eventlog.Reader)
	once   sync.Once
	done   chan struct{}
}

func (p *progressStream) progress(phase, message string) {
	p.log.Progress(phase, message)
	p.once.Do(p.begin)
}

func (p *progressStream) begin() {
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		reader := p.log.Reader(0)
		defer reader.Close()
		p.stream(reader)
	}()
}

// end adds the end event and waits until it is sent or the client has disconnected.
func (p *progressStream) end(body []byte) {
	p.log.Finish(time.Now(), body)
	if p.done != nil {
		<-p.done
	}
}
