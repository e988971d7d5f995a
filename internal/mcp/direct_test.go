package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dray-dev/dray"
)

type oneTool struct{ Tools }

func (oneTool) Get(_ context.Context, name string) (*dray.Tool, error) {
	return &dray.Tool{Name: name}, nil
}

// A call that panics leaves no goroutine that writes to a response which is no longer its own
// (EX-18, MC-04): the bubble of the test does not end while there is one.
func TestPanicEndsKeepAlive(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"` + statelessRevision + `",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		s := &Server{cfg: Config{Current: func() Configured {
			if requests++; requests > 1 { // the first one is before the call
				panic("a test")
			}
			return Configured{Tools: oneTool{}}
		}}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(body))
		for name, value := range map[string]string{
			methodHeader: "tools/call", nameHeader: "exec", versionHeader: statelessRevision,
			"Content-Type": mediaJSON, "Accept": mediaJSON + ", " + mediaSSE,
		} {
			r.Header.Set(name, value)
		}
		defer func() {
			if got := recover(); got != "a test" {
				t.Errorf("recovered %v", got)
			}
		}()
		s.serveDirect(httptest.NewRecorder(), r, "uid:1", []byte(body))
	})
}
