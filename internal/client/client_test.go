package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a handler on a unix socket and returns a client of it.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	server.Listener = l
	server.Start()
	c := New(socket, nil)
	t.Cleanup(server.Close)
	t.Cleanup(c.Close)
	return c
}

func TestProblemsKeepCodeAndHint(t *testing.T) {
	tests := map[string]struct {
		kind, body string
		want       dray.Error
	}{
		"problem": {
			"application/problem+json", `{"type":"about:blank","title":"Not Found","status":404,"detail":"no tool x","code":"unknown_tool","hint":"dray tools"}`,
			dray.Error{Code: dray.CodeUnknownTool, Message: "no tool x", Hint: "dray tools"},
		},
		"problem with details": {
			"application/problem+json; charset=utf-8", `{"title":"Bad","code":"invalid_input","errors":[{"pointer":"/input/a","message":"is missing"}]}`,
			dray.Error{
				Code: dray.CodeInvalidInput, Message: "Bad",
				Details: []dray.Detail{{Pointer: "/input/a", Message: "is missing"}},
			},
		},
		"something else": {
			"text/plain", "nope",
			dray.Error{Code: dray.CodeInternal, Message: `unexpected response "404 Not Found"`},
		},
		"a problem of somebody else": {
			"application/problem+json", `{"title":"Not Found"}`,
			dray.Error{Code: dray.CodeInternal, Message: `unexpected response "404 Not Found"`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Tools(t.Context(), "")
			got := dray.AsError(err)
			if got.Code != tt.want.Code || got.Message != tt.want.Message || tt.want.Hint != "" &&
				got.Hint != tt.want.Hint {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if len(got.Details) != len(tt.want.Details) {
				t.Errorf("details %v, want %v", got.Details, tt.want.Details)
			}
		})
	}
}

func TestReplyKeepsUnknownMembers(t *testing.T) {
	const body = `{"items":[{"name":"exec","later":1}],"next_cursor":""}`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	reply, err := c.Tools(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if string(reply.JSON) != body || reply.Value.Items[0].Name != "exec" {
		t.Errorf("got %s and %+v", reply.JSON, reply.Value)
	}
}

func TestRequests_NotUTF8(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") })
	if _, err := c.Start(t.Context(), Call{Tool: "exec", Input: []byte(`{}`), Cwd: "a\xffb"}); err == nil {
		t.Error("bytes that are no UTF-8 were sent as something else")
	}
}

func TestNoDaemon(t *testing.T) {
	c := New(filepath.Join(t.TempDir(), "none"), nil)
	if _, err := c.Tools(t.Context(), ""); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("got %v, want ErrNoDaemon", err)
	}
}

// A killed daemon leaves its socket file.
func TestNoDaemon_StaleSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if IsListening(t.Context(), socket) {
		t.Error("a stale socket answers")
	}
	if _, err := New(socket, nil).Tools(t.Context(), ""); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("got %v, want ErrNoDaemon", err)
	}
}

func TestClientStartsTheDaemon(t *testing.T) {
	running := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":[]}`) })
	socket := filepath.Join(t.TempDir(), "s")
	started := 0
	c := New(socket, func(context.Context) error {
		started++
		return os.Link(running.dialer.socket, socket)
	})
	t.Cleanup(c.Close)
	for range 2 {
		if _, err := c.Tools(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if started != 1 {
		t.Errorf("started %d times", started)
	}
}

func TestClient_StartFails(t *testing.T) {
	want := errors.New("no")
	c := New(filepath.Join(t.TempDir(), "s"), func(context.Context) error { return want })
	if _, err := c.Tools(t.Context(), ""); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestCancelledRequestReturnsTheCause(t *testing.T) {
	arrived := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	want := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(want)
	}()
	if _, err := c.Tools(ctx, ""); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
