package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

// maxDirect bounds the body of a request that is served without the SDK, in bytes.
const maxDirect = 1 << 20

// directCall is a request of the revision without sessions that calls a tool, and needs nothing of
// the protocol but a result. strictjson refuses every other member, and null.
type directCall struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Revision string `json:"io.modelcontextprotocol/protocolVersion"`
			Client   struct {
				Name    string `json:"name"`
				Title   string `json:"title"`
				Version string `json:"version"`
			} `json:"io.modelcontextprotocol/clientInfo"`
			Capabilities *struct {
				Roots      json.RawMessage            `json:"roots"`
				Extensions map[string]json.RawMessage `json:"extensions"`
			} `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	} `json:"params"`
}

// directResult is the result of a call as the SDK writes it.
type directResult struct {
	Meta       sdk.Meta      `json:"_meta"`
	Content    []sdk.Content `json:"content"`
	Structured any           `json:"structuredContent,omitempty"`
	IsError    bool          `json:"isError,omitempty"`
	ResultType string        `json:"resultType"`
}

// serveDirect serves a request that is a directCall, and reports whether it was one. If not, it has
// written nothing. The SDK decodes a request seven times, and the schema of its tool, which costs
// more than the rest of a call (docs/adr/0050).
func (s *Server) serveDirect(w http.ResponseWriter, r *http.Request, principal string,
	body []byte,
) bool {
	if !isDirect(r) {
		return false
	}
	c, t := s.directCall(r, body)
	if t == nil {
		return false
	}
	req := &sdk.CallToolRequest{
		Params: &sdk.CallToolParamsRaw{Name: c.Params.Name, Arguments: c.Params.Arguments},
		Extra: &sdk.RequestExtra{
			TokenInfo: &auth.TokenInfo{UserID: principal}, Header: r.Header,
		},
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	stop := keepAlive(w)
	defer stop() // if the call panics: nothing may be written when this function has returned
	res, err := s.callTool(r.Context(), req, t)
	stop()
	reply := map[string]any{"jsonrpc": "2.0", "id": c.ID}
	switch {
	case r.Context().Err() != nil:
		return true // the client does not wait any more
	case err != nil:
		reply["error"] = rpcError(err)
	default:
		reply["result"] = directResult{
			Meta:    sdk.Meta{sdk.MetaKeyServerInfo: s.implementation()},
			Content: res.Content, Structured: res.StructuredContent, IsError: res.IsError,
			ResultType: "complete",
		}
	}
	text, err := json.Marshal(reply)
	if err != nil {
		s.cfg.Log.Error("reply not encoded", "error", err)
		panic(http.ErrAbortHandler) // the client gets no half of a reply
	}
	_, _ = w.Write(text) // a client that has disconnected needs no answer
	return true
}

// keepAlive writes white space, which may precede JSON, while a call runs: proxies and clients
// close a connection that is silent (MC-04). The caller must call stop before it writes. Further
// calls of stop have no effect.
func keepAlive(w http.ResponseWriter) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if _, err := io.WriteString(w, "\n"); err != nil {
				return // the client has disconnected
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		group.Wait()
	})
}

// isDirect reports whether the headers of a request are those of a directCall.
func isDirect(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return r.Method == http.MethodPost && r.Header.Get(methodHeader) == "tools/call" &&
		r.Header.Get(versionHeader) == statelessRevision && r.Header.Get("Content-Type") == mediaJSON &&
		strings.Contains(accept, mediaJSON) && strings.Contains(accept, mediaSSE) &&
		r.Header.Get(sessionHeader) == "" && r.Header.Get("Last-Event-ID") == "" &&
		r.ContentLength <= maxDirect
}

// directCall decodes a body and returns the tool that it calls, nil if the SDK must serve the
// request. The SDK also serves a tool whose arguments are in headers too, because it compares them.
func (s *Server) directCall(r *http.Request, body []byte) (c directCall, t *dray.Tool) {
	if strictjson.Decode(body, &c) != nil {
		return c, nil
	}
	meta := c.Params.Meta
	if c.Version != "2.0" || c.Method != "tools/call" || !isRequestID(c.ID) ||
		c.Params.Name == "" || c.Params.Name != r.Header.Get(nameHeader) ||
		meta.Revision != statelessRevision || meta.Capabilities == nil || isOwn(c.Params.Name) {
		return c, nil
	}
	if _, ok := meta.Capabilities.Extensions[tasksExtension]; ok {
		return c, nil
	}
	t, err := s.cfg.Current().Tools.Get(r.Context(), c.Params.Name)
	if err != nil || bytes.Contains(t.InputSchema, []byte(`"x-mcp-header"`)) {
		return c, nil
	}
	return c, t
}

// isRequestID reports whether an id is a string or an integer.
func isRequestID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || len(bytes.Trim(id, "-0123456789")) == 0)
}
