package server

import (
	"net/http"

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

// route answers where a call would run, and why. Nothing runs. The input may be left out; one that is given has to fit.
func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	body, inv, err := s.decodeCall(w, r)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Tools.Find(inv.Tool); err != nil {
		return err
	}
	if body.Input != nil {
		if err := s.cfg.Tools.Validate(inv.Tool, inv.Input); err != nil {
			return err
		}
	}
	d, err := s.cfg.Router.Route(inv)
	if err == nil {
		err = s.cfg.Places.CheckRoute(r.Context(), d, inv)
	}
	return reply(w, routeReply{
		Environment: d.Environment, Rule: d.Rule, Container: d.Container, Workspace: d.Workspace, Candidates: d.Candidates,
		Error: dray.AsError(err),
	})
}
