package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// tool is the daemon's side of stdin. It stores what it receives, and refuses every other chunk
// once.
type tool struct {
	mu      sync.Mutex
	got     []byte
	eof     bool
	refused map[string]bool
	limit   int // bytes after which the call has ended; 0: never
}

func (s *tool) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.RequestURI()
	if s.refused != nil && !s.refused[query] {
		s.refused[query] = true
		w.Header().Set("Retry-After", "0.001")
		problemJSON(w, http.StatusTooManyRequests, "busy")
		return
	}
	if s.limit > 0 && len(s.got) >= s.limit {
		problemJSON(w, http.StatusConflict, "conflict")
		return
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	body, _ := io.ReadAll(r.Body)
	if offset == len(s.got) {
		s.got = append(s.got, body...)
	}
	s.eof = s.eof || r.URL.Query().Get("eof") == "1"
	_, _ = io.WriteString(w, "{}")
}

func problemJSON(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"title":"x","code":"`+code+`"}`)
}

func TestStdinSendsEveryByte(t *testing.T) {
	input := make([]byte, 3*stdinChunk+17)
	_, _ = rand.Read(input)
	tests := map[string]struct {
		reader  io.Reader
		want    []byte
		refused map[string]bool
	}{
		"whole":           {bytes.NewReader(input), input, nil},
		"again after 429": {bytes.NewReader(input), input, map[string]bool{}},
		"in single bytes": {iotest.OneByteReader(bytes.NewReader(input[:100])), input[:100], nil},
		"last with EOF":   {iotest.DataErrReader(bytes.NewReader(input)), input, nil},
		"empty":           {strings.NewReader(""), nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &tool{refused: tt.refused}
			c := serve(t, s.handle)
			if err := c.Stdin(t.Context(), "i1", tt.reader); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(s.got, tt.want) || !s.eof {
				t.Errorf("got %d bytes, eof %v; want %d bytes", len(s.got), s.eof, len(tt.want))
			}
		})
	}
}

func TestStdin_CallEnded(t *testing.T) {
	s := &tool{limit: stdinChunk}
	c := serve(t, s.handle)
	endless := iotest.TimeoutReader(neverEnding{}) // fails at its second read
	if err := c.Stdin(t.Context(), "i1",
		io.MultiReader(bytes.NewReader(make([]byte, 2*stdinChunk)), endless)); err != nil {
		t.Errorf("got %v, want nil: the tool need not read stdin", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// After a read error the tool must not see an end of file: the input is incomplete.
func TestStdin_ReadError(t *testing.T) {
	s := &tool{}
	c := serve(t, s.handle)
	want := errors.New("broken disk")
	err := c.Stdin(t.Context(), "i1", io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(want)))
	if !errors.Is(err, want) || s.eof || string(s.got) != "abc" {
		t.Errorf("got %v, eof %v, %q", err, s.eof, s.got)
	}
}

func TestStdin_ContextCancelled(t *testing.T) {
	want := errors.New("the call is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		problemJSON(w, http.StatusTooManyRequests, "busy")
		cancel(want)
	})
	if err := c.Stdin(ctx, "i1", neverEnding{}); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
