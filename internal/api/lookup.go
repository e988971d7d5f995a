package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// routeReply is a decision. Where there is none, error says why, and the rest what was looked at.
type routeReply struct {
	Environment dray.EnvironmentKind `json:"environment"`
	Rule        string               `json:"rule"`
	Container   string               `json:"container"`
	Workspace   string               `json:"workspace"`
	Candidates  []dray.Candidate     `json:"candidates"`
	Error       *dray.Error          `json:"error,omitempty"`
}

// route answers where a call would run, and why. Nothing runs. The input may be left out; one that
// is given has to fit.
func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	body, inv, err := s.decodeCall(w, r)
	if err != nil {
		return err
	}
	tool, err := s.cfg.Tools.Get(inv.Tool)
	if err != nil {
		return err
	}
	if body.Input != nil {
		if err := tool.CheckInput(inv.Input); err != nil {
			return err
		}
	}
	d, err := s.cfg.Router.Route(inv, tool.Environment)
	if err == nil {
		err = s.cfg.Places.CheckRoute(r.Context(), d, inv, tool)
	}
	return reply(w, routeReply{
		Environment: d.Environment, Rule: d.Rule, Container: d.Container, Workspace: d.Workspace, Candidates: d.Candidates,
		Error: dray.AsError(err),
	})
}

// maxPaths bounds the paths of one request.
const maxPaths = 10000

// paths answers with mapped paths, in order.
func (s *Server) paths(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	var req PathsRequest
	if err := s.decode(w, r, &req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	mapped, err := s.cfg.Paths.Map(r.Context(), req)
	if err != nil {
		return err
	}
	return reply(w, mapped)
}

// check cleans the request.
func (p *PathsRequest) check() error {
	var m violations
	p.Workspace = absolutePath(&m, "/workspace", p.Workspace)
	p.Container = containerName(&m, "/container", p.Container)
	if p.Workspace == "" && p.Container == "" {
		m.add("/workspace", "a workspace or a container has to be named")
	}
	if p.Direction == "" {
		m.add("/direction", "a direction has to be given: to_host or to_container")
	}
	oneOf(&m, "/direction", p.Direction, ToHost, ToContainer)
	if p.Paths == nil || len(p.Paths) > maxPaths {
		m.add("/paths", "a list of at most %d paths has to be given", maxPaths)
	}
	if err := m.err(); err != nil {
		return err
	}
	return checkPaths(p.Paths)
}

// checkPaths refuses what no mapping may guess at. The code is invalid_input: the paths are what is
// worked on.
func checkPaths(paths []string) error {
	var m violations
	for i, p := range paths {
		pointer := fmt.Sprintf("/paths/%d", i)
		switch {
		case p == "":
			m.add(pointer, "a path is not empty")
		case strings.ContainsRune(p, 0):
			m.add(pointer, "a path holds no NUL")
		case slices.Contains(strings.Split(p, "/"), ".."):
			m.add(pointer, "%q leads upwards with '..'", truncate(p))
		}
	}
	if len(m.details) == 0 {
		return nil
	}
	e := m.report()
	e.Code = dray.CodeInvalidInput
	return e
}

// tools answers with all tools.
func (s *Server) tools(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	var all []Tool
	for _, t := range s.cfg.Tools.List() {
		all = append(all, toolView(t))
	}
	return reply(w, listReply[Tool]{all})
}

// tool answers with one tool.
func (s *Server) tool(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	var m violations
	name := toolName(&m, "name", r.PathValue("name"))
	if err := m.queryErr(); err != nil {
		return err
	}
	t, err := s.cfg.Tools.Get(name)
	if err != nil {
		return err
	}
	return reply(w, toolView(t))
}

// stateReply is the answer of /healthz and /readyz.
type stateReply struct {
	Status string `json:"status"`
}

// health answers that the process lives.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, stateReply{"ok"})
}

// ready answers whether calls are taken.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.calls.Draining() {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is ending").
			WithHint("wait until it runs again")
	}
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(r.Context()); err != nil {
			return &httpError{err: err, status: http.StatusServiceUnavailable}
		}
	}
	return reply(w, stateReply{"ready"})
}

// document answers with the OpenAPI document.
func (s *Server) document(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, mediaJSON, s.openapi)
	return nil
}
