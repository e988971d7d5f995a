package server

import (
	"net/http"

	"github.com/dray-dev/dray"
)

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
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is ending").WithHint("wait until it runs again")
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
