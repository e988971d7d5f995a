package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/server/stdin"
)

// stdinPiece is how much of a long body is handed on at once.
const stdinPiece = 64 << 10

// stdinReply says how many bytes of stdin were taken in all.
type stdinReply struct {
	Accepted int64 `json:"accepted"`
}

// writeStdin passes bytes to the stdin of a running call. A body of at most stdin.Capacity is taken whole or not at all. A longer one is taken piece by
// piece while the tool reads, and needs an offset, because a part of it may be taken when the rest is refused.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "offset", "eof")
	if err != nil {
		return err
	}
	offset, eof, err := parseStdinQuery(q)
	if err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	if f.call == nil || f.call.Stdin() == nil {
		return dray.Errorf(dray.CodeConflict, "the call has no open stdin").WithHint("start it with stdin_open, and write before it ends")
	}
	accepted, err := s.copyBody(w, r, f.call.Stdin(), offset, eof)
	if err != nil {
		accepted = f.call.Stdin().Accepted()
		return &httpError{err: err, accepted: &accepted}
	}
	return reply(w, stdinReply{Accepted: accepted})
}

func parseStdinQuery(q url.Values) (offset int64, eof bool, err error) {
	offset = stdin.Append
	if text := q.Get("offset"); text != "" {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return 0, false, invalid("", "offset is %q", truncate(text)).WithHint("give the number of bytes of stdin before these")
		}
		offset = int64(n)
	}
	switch text := q.Get("eof"); text {
	case "", "0":
		return offset, false, nil
	case "1":
		return offset, true, nil
	default:
		return 0, false, invalid("", "eof is %q", truncate(text)).WithHint("give eof=1 with the last bytes, or leave it out")
	}
}

// copyBody writes the body to the pipe and says how much that has taken in all.
func (s *Server) copyBody(w http.ResponseWriter, r *http.Request, pipe *stdin.Pipe, offset int64, eof bool) (int64, error) {
	body := http.MaxBytesReader(unwrap(w), r.Body, s.cfg.MaxBody)
	first, err := io.ReadAll(io.LimitReader(body, stdin.Capacity+1))
	if err != nil {
		return 0, s.bodyError(err)
	}
	if len(first) <= stdin.Capacity {
		return pipe.Append(r.Context(), offset, first, eof)
	}
	if offset == stdin.Append {
		return 0, dray.Errorf(dray.CodeTooLarge, "without an offset at most %d bytes are taken at once", stdin.Capacity).
			WithHint("give offset, or send less")
	}
	return s.copyBodyChunks(r.Context(), pipe, io.MultiReader(bytes.NewReader(first), body), offset, eof)
}

func (s *Server) copyBodyChunks(ctx context.Context, pipe *stdin.Pipe, body io.Reader, offset int64, eof bool) (accepted int64, err error) {
	piece := make([]byte, stdinPiece)
	for {
		n, err := io.ReadFull(body, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return accepted, s.bodyError(err)
		}
		if accepted, err = pipe.Append(ctx, offset, piece[:n], eof && last); err != nil || last {
			return accepted, err
		}
		offset += int64(n)
	}
}

// bodyError says why a body could not be read.
func (s *Server) bodyError(err error) error {
	switch {
	case isTooLarge(err):
		return dray.Errorf(dray.CodeTooLarge, "the body is larger than %d bytes", s.cfg.MaxBody).WithHint("send it in pieces, each with its offset")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bodyStalledError()
	default:
		return invalid("", "reading the body: %v", err).WithHint("send as many bytes as Content-Length says")
	}
}
