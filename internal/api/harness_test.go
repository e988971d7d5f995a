package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/api/unixsock"
	"github.com/dray-dev/dray/internal/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// selfPrincipal is the principal of everything that this process asks.
var selfPrincipal = fmt.Sprintf("uid:%d", os.Geteuid())

// fakeDeps are what a server of the tests works with. Each test changes what it is about.
type fakeDeps struct {
	trail      *fakeAudit
	run        dray.ExecutorFunc
	tools      map[string]*dray.Tool
	validate   func(name string, input json.RawMessage) error
	route      func(dray.Invocation) (dray.Route, error)
	workspaces func(context.Context, api.WorkspaceAction, string,
		func(string, string)) (api.Workspace, error)
	paths    func(api.PathsRequest) (api.PathsReply, error)
	captures captures
	ready    func(context.Context) error
	maxBody  int64
	config   func(*api.Config)
}

// succeed is a tool that prints a greeting and exits with 0.
func succeed(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
	sink.Started()
	sink.Output(dray.Stdout, []byte("hello\n"))
	return exited(0), nil
}

func exited(code int) dray.Result {
	now := time.Now()
	return dray.Result{Reason: dray.ReasonExited, ExitCode: &code, StartedAt: now, EndedAt: now}
}

// untilCancelled is a tool that runs until it is cancelled.
func untilCancelled(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
	sink.Started()
	<-ctx.Done()
	res := dray.Result{
		Reason: dray.ReasonCancelled,
		Error:  &dray.Error{Message: context.Cause(ctx).Error()},
	}
	return res, nil
}

// fakeAudit is a record of calls in memory: what the audit store does for the server, without its
// disk.
type fakeAudit struct {
	mu      sync.Mutex
	records map[string]dray.Record
	begin   error
	began   chan struct{} // if set, begin waits for it
	listed  audit.Query
	changes audit.ChangeQuery
}

func (t *fakeAudit) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		if t.began != nil {
			<-t.began
		}
		if t.begin != nil {
			return dray.Result{}, t.begin
		}
		rec := dray.NewRecord(call.Invocation, time.Now())
		t.put(rec)
		res, err := next.Execute(ctx, call, sink)
		res = dray.NormalizeResult(res, err)
		t.put(rec.WithResult(res))
		return res, nil
	})
}

func (t *fakeAudit) put(rec dray.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records[rec.ID] = rec
}

func (t *fakeAudit) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records)
}

func (t *fakeAudit) Get(_ context.Context, principal, id string) (dray.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, ok := t.records[id]
	if !ok || rec.Principal != principal {
		return rec, dray.Errorf(dray.CodeNotFound, "no such call")
	}
	return rec, nil
}

func (t *fakeAudit) List(_ context.Context, q audit.Query) (audit.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = q
	var all []dray.Record
	for _, rec := range t.records {
		if rec.Principal == q.Principal {
			all = append(all, rec)
		}
	}
	slices.SortFunc(all, func(a, b dray.Record) int { return strings.Compare(b.ID, a.ID) })
	return audit.Page{Items: all[:min(len(all), q.Limit)], NextCursor: "next"}, nil
}

func (t *fakeAudit) Changes(_ context.Context, q audit.ChangeQuery) (audit.ChangePage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = q
	return audit.ChangePage{}, nil
}

// captures are kept streams by id and name.
type captures map[string][]byte

func (c captures) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	b, ok := c[id+"."+stream.String()]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return kept{bytes.NewReader(b)}, nil
}

func (c captures) OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return c.Open(id+".rewritten", stream)
}

func (c captures) OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	if f, err := c.OpenRewritten(id, stream); err == nil {
		return f, nil
	}
	return c.Open(id, stream)
}

type kept struct{ *bytes.Reader }

func (kept) Close() error { return nil }

func (p *fakeDeps) List() []*dray.Tool {
	var all []*dray.Tool
	for _, t := range p.tools {
		all = append(all, t)
	}
	return all
}

func (p *fakeDeps) Get(name string) (*dray.Tool, error) {
	t, ok := p.tools[name]
	if !ok {
		return nil, dray.Errorf(dray.CodeUnknownTool, "there is no tool %s", name).WithHint("GET /v1/tools")
	}
	checked := *t
	checked.CheckInput = func(input json.RawMessage) error { return p.validate(name, input) }
	return &checked, nil
}

func (p *fakeDeps) Route(inv dray.Invocation, _ dray.Requirement) (dray.Route, error) {
	return p.route(inv)
}

func (p *fakeDeps) CheckRoute(context.Context, dray.Route, dray.Invocation, *dray.Tool) error {
	return nil
}

func (p *fakeDeps) Map(_ context.Context, req api.PathsRequest) (api.PathsReply, error) {
	return p.paths(req)
}

type fakeWorkspaces struct{ *fakeDeps }

func (w fakeWorkspaces) List(context.Context) ([]api.Workspace, error) {
	return []api.Workspace{{ID: "app", Folder: "/home/me/app", State: "stopped"}}, nil
}

func (w fakeWorkspaces) Run(ctx context.Context, verb api.WorkspaceAction, id string,
	progress func(string, string),
) (api.Workspace, error) {
	return w.workspaces(ctx, verb, id, progress)
}

// daemon is a server that listens on a real socket.
type daemon struct {
	*fakeDeps
	t      testing.TB
	server *api.Server
	socket string
	client *http.Client
	logs   *observer.ObservedLogs
}

// start serves with the given parts until the test is over.
func start(t testing.TB, change func(*fakeDeps)) *daemon {
	t.Helper()
	d := build(t, change)
	d.serve()
	return d
}

// build makes a server that listens nowhere yet.
func build(t testing.TB, change func(*fakeDeps)) *daemon {
	t.Helper()
	p := &fakeDeps{
		trail: &fakeAudit{records: map[string]dray.Record{}},
		run:   succeed,
		tools: map[string]*dray.Tool{
			"exec":  {Name: "exec", Description: "runs argv", InputSchema: json.RawMessage(`{"type":"object"}`), AcceptsStdin: true},
			"greet": {Name: "greet", Description: "greets", InputSchema: json.RawMessage(`{"type":"object"}`)},
		},
		validate: func(string, json.RawMessage) error { return nil },
		route: func(dray.Invocation) (dray.Route, error) {
			return dray.Route{Environment: dray.KindHost, Rule: "host"}, nil
		},
		captures: captures{},
		maxBody:  1 << 20,
	}
	if change != nil {
		change(p)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	cfg := api.Config{
		Executor: p.trail.Executor(call.MarkAccepted(p.run)), Records: p.trail, Tools: p, Router: p, Places: p, Workspaces: fakeWorkspaces{p}, Paths: p,
		Captures: p.captures, Log: zap.New(core),
		MaxBody: p.maxBody, MaxTimeout: time.Hour, Ready: p.ready, Version: "test",
	}
	if p.config != nil {
		p.config(&cfg)
	}
	s, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{
		fakeDeps: p, t: t, server: s, socket: filepath.Join(t.TempDir(), "dray.sock"),
		logs: logs,
	}
}

func (d *daemon) serve() {
	d.t.Helper()
	l, err := unixsock.Listen(context.Background(), d.socket, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error,
	) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}
	d.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	d.t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // whatever still runs is cancelled at once
		if err := d.server.Shutdown(ctx); err != nil {
			d.t.Error(err)
		}
		if err := <-served; err != nil {
			d.t.Error(err)
		}
	})
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is what an error says.
type problem struct {
	Type     string        `json:"type"`
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail"`
	Code     dray.Code     `json:"code"`
	Hint     string        `json:"hint"`
	Errors   []dray.Detail `json:"errors"`
	Accepted *int64        `json:"accepted"`
}

// request makes a request. Headers are "Name: value"; a JSON body gets its content type unless they
// say otherwise.
func (d *daemon) request(method, path, body string, headers ...string) *http.Request {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://localhost"+path,
		strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	return req
}

// do sends a request and reads the whole answer.
func (d *daemon) do(method, path, body string, headers ...string) answer {
	d.t.Helper()
	return d.send(d.request(method, path, body, headers...))
}

func (d *daemon) send(req *http.Request) answer {
	d.t.Helper()
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// record reads the invocation of an answer.
func (a answer) record(t testing.TB) dray.Record {
	t.Helper()
	var rec dray.Record
	if err := json.Unmarshal(a.body, &rec); err != nil {
		t.Fatalf("%v in %d %s", err, a.status, a.body)
	}
	return rec
}

// problem reads the error of an answer.
func (a answer) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("an error of type %q: %d %s", got, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}
