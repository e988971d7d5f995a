package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
)

// The rows of the part mcp. The client of all but the last two is written by hand, over the
// connections of the row over HTTP, so that each pays the same for its client.
const (
	mcpHTTP        = "HTTP, container"
	mcpHTTPHost    = "HTTP, host"
	mcpSingle      = "MCP 2026-07-28, container"
	mcpSession     = "MCP 2025-11-25, container"
	mcpSingleHost  = "MCP 2026-07-28, host"
	mcpSessionHost = "MCP 2025-11-25, host"
	mcpStdio       = "`dray mcp`, container"
	mcpSDK         = "client of the Go SDK, 2025-11-25, container"
)

const (
	singleRevision  = "2026-07-28"
	sessionRevision = "2025-11-25"
	// idleSessions is the maximum number of sessions of a daemon.
	idleSessions = 256
)

var (
	// runMCP is a command of its own, so that the rows over HTTP are those of this part.
	runMCP     = command{name: "`true`", argv: []string{"true"}}
	mcpLoads   = []load{{1, &runMCP}, {16, &runMCP}, {64, &runMCP}}
	mcpCalls   = map[int]int{1: 50, 16: 160, 64: 256}
	mcpClients = mcpLoads[2].callers
)

// mcpRuns has the rows, and the daemon's memory of an idle session in bytes.
type mcpRuns struct {
	methods []method
	idle    int64
}

// mcpBench is a daemon and the clients of the rows.
type mcpBench struct {
	*testbed

	host string // a directory that no container is configured for
	undo []func() error
}

// newMCPRuns connects the clients of the rows. closeRows ends them.
func newMCPRuns(ctx context.Context, b *testbed) (_ *mcpRuns, closeRows func(), err error) {
	m := &mcpBench{testbed: b, host: filepath.Join(b.dir, hostDir)}
	closeRows = func() {
		for _, undo := range m.undo {
			_ = undo() // the daemon ends what is left
		}
	}
	r := &mcpRuns{}
	add := func(name string, run runner) {
		r.methods = append(r.methods, method{name: name, calls: mcpCalls, run: b.daemon.counted(run)})
	}
	add(mcpHTTP, b.daemon.http.call(b.workspace, dray.ChooseContainer))
	add(mcpHTTPHost, b.daemon.http.call(m.host, dray.ChooseHost))
	for _, row := range []struct {
		name, workspace string
		open            func(context.Context) (mcpCaller, error)
	}{
		{mcpSingle, b.workspace, m.single},
		{mcpSession, b.workspace, m.session},
		{mcpSingleHost, m.host, m.single},
		{mcpSessionHost, m.host, m.session},
		{mcpStdio, b.workspace, m.bridge},
		{mcpSDK, b.workspace, m.sdkClient},
	} {
		clients := make(chan mcpCaller, mcpClients)
		for range mcpClients {
			client, err := row.open(ctx)
			if err != nil {
				return nil, closeRows, fmt.Errorf("%s: %w", row.name, err)
			}
			clients <- client
		}
		add(row.name, m.runner(clients, row.workspace))
	}
	return r, closeRows, nil
}

// mcpCaller makes a call of exec and returns the result as JSON.
type mcpCaller func(ctx context.Context, arguments []byte) (result []byte, err error)

// runner returns a runner whose callers each take a client for a call.
func (m *mcpBench) runner(clients chan mcpCaller, workspace string) runner {
	return func(ctx context.Context, c *command) error {
		client := <-clients
		defer func() { clients <- client }()
		arguments, err := json.Marshal(map[string]any{"argv": c.argv, "workspace": workspace})
		if err != nil {
			return err
		}
		text, err := client(ctx, arguments)
		if err != nil {
			return err
		}
		var result struct {
			StructuredContent struct {
				ExitCode  *int   `json:"exit_code"`
				Stdout    string `json:"stdout"`
				Container string `json:"container"`
			} `json:"structuredContent"`
		}
		if err := json.Unmarshal(text, &result); err != nil {
			return err
		}
		got := result.StructuredContent
		if got.ExitCode == nil || (got.Container == "") != (workspace == m.host) {
			return fmt.Errorf("the call did not run where it should: %s", text)
		}
		return expect(c, *got.ExitCode, got.Stdout)
	}
}

// single makes calls of the revision without sessions.
func (m *mcpBench) single(context.Context) (mcpCaller, error) {
	return m.caller(singleRevision, ""), nil
}

// session makes calls in a session of its own.
func (m *mcpBench) session(ctx context.Context) (mcpCaller, error) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
		sessionRevision + `","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	_, id, err := m.post(ctx, http.Header{}, []byte(hello))
	if err == nil {
		_, _, err = m.post(ctx, http.Header{"Mcp-Session-Id": {id}},
			[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	}
	return m.caller(sessionRevision, id), err
}

// caller returns a client that posts one request for each call.
func (m *mcpBench) caller(revision, session string) mcpCaller {
	header := http.Header{"Mcp-Protocol-Version": {revision}}
	if session != "" {
		header.Set("Mcp-Session-Id", session)
	} else {
		header.Set("Mcp-Method", "tools/call")
		header.Set("Mcp-Name", "exec")
	}
	return func(ctx context.Context, arguments []byte) ([]byte, error) {
		text, _, err := m.post(ctx, header, toolCall(revision, arguments))
		if err != nil {
			return nil, err
		}
		return resultOf(text)
	}
}

// toolCall returns the message that calls exec.
func toolCall(revision string, arguments []byte) []byte {
	meta := ""
	if revision == singleRevision {
		meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision + `",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}},`
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{%s"name":"exec",`+
		`"arguments":%s}}`, meta, arguments)
}

// resultOf returns the result in a response.
func resultOf(text []byte) (json.RawMessage, error) {
	var response struct{ Result json.RawMessage }
	if err := json.Unmarshal(text, &response); err != nil || response.Result == nil {
		return nil, fmt.Errorf("the response has no result: %s", text)
	}
	return response.Result, nil
}

// post sends a message and returns the last message of the response.
func (m *mcpBench) post(ctx context.Context, header http.Header, message []byte) (text []byte,
	session string, err error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp",
		bytes.NewReader(message))
	if err != nil {
		return nil, "", err
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := m.daemon.http.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return nil, "", err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, "", fmt.Errorf("the daemon responded %s: %s", resp.Status, text)
	}
	if i := bytes.LastIndex(text, []byte("data: ")); i >= 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text = text[i+len("data: "):]
	}
	return text, resp.Header.Get("Mcp-Session-Id"), nil
}

// bridge starts a `dray mcp`, which is served without a session.
func (m *mcpBench) bridge(ctx context.Context) (mcpCaller, error) {
	//nolint:gosec // what is measured
	cmd := exec.CommandContext(ctx, m.dray, "mcp", "--state", m.daemon.state)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() error {
		_ = in.Close()
		return cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return func(_ context.Context, arguments []byte) ([]byte, error) {
		if _, err := in.Write(append(toolCall(singleRevision, arguments), '\n')); err != nil {
			return nil, err
		}
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		return resultOf(text)
	}, nil
}

// sdkClient connects a client of the Go SDK.
func (m *mcpBench) sdkClient(ctx context.Context) (mcpCaller, error) {
	client := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: "http://localhost/mcp", HTTPClient: m.daemon.http.client, DisableStandaloneSSE: true,
	}, &sdk.ClientSessionOptions{ProtocolVersion: sessionRevision})
	if err != nil {
		return nil, err
	}
	m.undo = append(m.undo, session.Close)
	return func(ctx context.Context, arguments []byte) ([]byte, error) {
		result, err := session.CallTool(ctx, &sdk.CallToolParams{
			Name: "exec", Arguments: json.RawMessage(arguments),
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	}, nil
}

// measureIdle measures the daemon's memory of sessions that do nothing, after a daemon's start.
func (m *mcpBench) measureIdle(ctx context.Context) (bytes int64, err error) {
	var before, after int64
	if before, err = memoryOf(m.daemon.pid(), "VmRSS"); err != nil {
		return 0, err
	}
	for range idleSessions {
		if _, err := m.session(ctx); err != nil {
			return 0, err
		}
	}
	after, err = memoryOf(m.daemon.pid(), "VmRSS")
	return max(0, after-before) / idleSessions, err
}

// measureMCP measures the memory of sessions in a daemon that was just started, then all rows.
func (m *measurements) measureMCP(ctx context.Context, b *testbed) (err error) {
	if err := b.restart(ctx); err != nil {
		return err
	}
	idle, err := (&mcpBench{testbed: b}).measureIdle(ctx)
	if err == nil {
		err = b.restart(ctx)
	}
	if err != nil {
		return err
	}
	r, closeRows, err := newMCPRuns(ctx, b)
	defer closeRows()
	if err != nil {
		return err
	}
	r.idle, m.mcp = idle, r
	return m.runs.measureCalls(ctx, r.methods, mcpLoads, m.rounds)
}

// restart starts the daemon anew.
func (b *testbed) restart(ctx context.Context) error {
	if err := b.daemon.stop(); err != nil {
		return fmt.Errorf("stop the daemon: %w", err)
	}
	return b.daemon.start(ctx)
}

// mcpTable has the rows of a load. Each is compared with the same call over HTTP.
func mcpTable(m *measurements, l load) string {
	if m.mcp == nil {
		return ""
	}
	var rows [][]string
	for _, method := range m.mcp.methods {
		r := m.runs.of(l, method.name)
		base := mcpHTTP
		if strings.HasSuffix(method.name, "host") {
			base = mcpHTTPHost
		}
		http := m.runs.of(l, base)
		rows = append(rows, []string{
			method.name, fmt.Sprint(r.count()), millis(r.quantile(0.5)), millis(r.quantile(0.99)),
			spreadText(&r.sample), ratio(float64(r.quantile(0.5)), float64(http.quantile(0.5))),
			ratio(float64(r.quantile(0.99)), float64(http.quantile(0.99))),
		})
	}
	return table([]string{
		"`true`", "calls", "p50", "p99", "p50 of the rounds", "p50 / HTTP's", "p99 / HTTP's",
	}, rows)
}

// mcpTargets compare a call over MCP with the same over HTTP.
func mcpTargets() (all []target) {
	for _, l := range mcpLoads {
		for _, row := range []struct{ name, http string }{
			{mcpSingle, mcpHTTP},
			{mcpSession, mcpHTTP},
			{mcpSingleHost, mcpHTTPHost},
			{mcpSessionHost, mcpHTTPHost},
		} {
			all = append(all, target{
				text:  fmt.Sprintf("%s, p50 of %d at once, over HTTP's", row.name, l.callers),
				limit: 1.3, value: over(p50Of(l, row.name), p50Of(l, row.http)),
			})
		}
	}
	return all
}

// mcpIdleText says what a session without requests takes.
func mcpIdleText(m *measurements) string {
	if m.mcp == nil {
		return ""
	}
	return fmt.Sprintf("%d sessions without a request: the resident memory of the daemon, which had "+
		"just started, grew by %s KiB for each.\n", idleSessions, digits(float64(m.mcp.idle)/(1<<10)))
}
