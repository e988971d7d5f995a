package server

import "net/http"

// tools answers with all tools.
func (s *Server) tools(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return reply(w, listReply[Tool]{s.cfg.Tools.List()})
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
	t, err := s.cfg.Tools.Find(name)
	if err != nil {
		return err
	}
	return reply(w, t)
}
