package api

import (
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/strictjson"
)

// workspaces answers with the known workspaces.
func (s *Server) workspaces(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	all, err := s.cfg.Workspaces.List(r.Context())
	if err != nil {
		return err
	}
	return reply(w, listReply[Workspace]{all})
}

// workspace gives the handler of one verb.
func (s *Server) workspace(verb WorkspaceAction) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := s.workspaceOf(w, r)
		if err != nil {
			return err
		}
		if s.calls.Draining() {
			return dray.Errorf(dray.CodeShuttingDown, "the daemon is ending").
				WithHint("repeat it when the daemon runs again")
		}
		if form := responseFormat(r, mediaJSON); form != mediaJSON {
			return s.streamWorkspace(w, r, verb, id, form)
		}
		ws, err := s.cfg.Workspaces.Run(r.Context(), verb, id, func(string, string) {})
		if err != nil {
			return err
		}
		return reply(w, ws)
	}
}

// workspaceOf gives the workspace that a request is about. There is nothing to say in its body:
// whoever calls does not choose the variables of `up`.
func (s *Server) workspaceOf(w http.ResponseWriter, r *http.Request) (id string, err error) {
	if _, err := query(r); err != nil {
		return "", err
	}
	if err := s.decodeOptional(w, r, &struct{}{}); err != nil {
		return "", err
	}
	var m violations
	id = workspaceID(&m, r.PathValue("id"))
	return id, m.queryErr()
}

// workspaceID is an id of the list, or an absolute folder whose slashes are percent-encoded.
func workspaceID(m *violations, id string) string {
	if strings.HasPrefix(id, "/") {
		return absolutePath(m, "id", id)
	}
	if !namePattern.MatchString(id) {
		m.add("id", "%q cannot be a workspace's id; it is one of the list's, or an absolute folder with its slashes as %%2F", truncate(id))
	}
	return id
}

// workspaceEndEvent is the body of the end event of what was done to a workspace.
type workspaceEndEvent struct {
	Workspace *Workspace  `json:"workspace,omitempty"`
	Error     *dray.Error `json:"error,omitempty"`
}

// streamWorkspace does it and answers with its progress meanwhile. An error before any progress is
// an answer as ever; later the end event has it.
func (s *Server) streamWorkspace(w http.ResponseWriter, r *http.Request, verb WorkspaceAction, id,
	form string,
) error {
	p := &progressStream{
		log:    eventlog.NewLog(noOutput),
		stream: func(reader *eventlog.Reader) { stream(w, r, reader, form) },
	}
	defer p.end([]byte("{}")) // after a panic
	ws, err := s.cfg.Workspaces.Run(r.Context(), verb, id, p.progress)
	if err != nil && p.done == nil {
		return err
	}
	end := workspaceEndEvent{Error: dray.AsError(err)}
	if err == nil {
		end.Workspace = &ws
	}
	body, err := strictjson.Encode(end)
	if err != nil {
		return dray.Errorf(dray.CodeInternal, "writing the answer: %w", err).
			WithHint("the daemon's log has more")
	}
	p.once.Do(p.begin)
	p.end(body)
	return nil
}

func noOutput(dray.Stream) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist }

// progressStream sends progress in a goroutine of its own, so that a slow reader does not slow what
// it watches. It begins with the first.
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
		defer func() { _ = reader.Close() }() // it was only read
		p.stream(reader)
	}()
}

// end adds the last event and waits until everything is sent, or the client is gone.
func (p *progressStream) end(body []byte) {
	p.log.Finish(body)
	if p.done != nil {
		<-p.done
	}
}
