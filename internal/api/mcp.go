package api

import (
	"bytes"
	"io"
	"net/http"
)

// serveMCP serves a request of the Model Context Protocol. Its body is received as those of other
// requests are, because many unfinished ones must not use all memory.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		err := s.bodies.read(w, r, func(data []byte) error {
			received := *r
			received.Body = io.NopCloser(bytes.NewReader(bytes.Clone(data)))
			received.ContentLength = int64(len(data))
			r = &received
			return nil
		})
		if err != nil {
			s.fail(w, err)
			return
		}
	}
	s.cfg.MCP.Serve(w, r, principal(r), inCall(r))
}
