package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

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

// checkPaths refuses what no mapping may guess at. The code is invalid_input: the paths are what is worked on.
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
