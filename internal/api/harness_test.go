package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/policy/approval"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// selfPrincipal is the principal of the requests of this process.
var selfPrincipal = fmt.Sprintf("uid:%d", os.Geteuid())

// fakeDeps are the dependencies of a server in a test.
type fakeDeps struct {
	audit      *fakeAudit
	run        dray.ExecutorFunc
	tools      map[string]*dray.Tool
	states     *tool.States
	checkInput func(json.RawMessage) error
	route      func(dray.Invocation) (dray.Route, error)
	workspaces func(context.Context, workspace.Action, string,
		func(string, string)) (workspace.Info, error)
	mounts []dray.Mount
	// mountsPanic makes the handler of paths panic.
	mountsPanic bool
	captures    captures
	ready       func(context.Context) error
	maxBody     int64
	// executor wraps the executor of the audit log, if set.
	executor func(dray.Executor) dray.Executor
	config   func(*api.Config)
}

// succeed is a tool that writes to stdout and exits with 0.
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

// noProver is an audit log without a Merkle log.
type noProver struct{}

func (noProver) Checkpoint(context.Context) ([]byte, error) { return nil, errNoProof }

func (noProver) Consistency(context.Context, int64) ([]byte, error) { return nil, errNoProof }

func (noProver) Receipt(context.Context, string, string, bool) ([]byte, error) {
	return nil, errNoProof
}

func (noProver) Verify(context.Context) (audit.Report, error) { return audit.Report{}, errNoProof }

var errNoProof = dray.Errorf(dray.CodeAuditUnavailable, "no Merkle log in memory")

// fakeAudit is an audit log in memory.
type fakeAudit struct {
	exportErr error // how Export ends
	mu        sync.Mutex
	records   map[string]dray.Record
	beginErr  error
	blocked   chan struct{} // if set, the begin record waits for it
	listed    audit.Query
	begun     bool
	changes   audit.ChangeQuery

	eventQuery audit.EventQuery
	events     []audit.Body
	recordErr  error
	rejected   []string
}

func (t *fakeAudit) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		if t.blocked != nil {
			<-t.blocked
		}
		if t.beginErr != nil {
			return dray.Result{}, t.beginErr
		}
		rec := dray.NewRecord(c.Invocation, time.Now())
		t.put(rec)
		res, err := next.Execute(ctx, c, sink)
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
	if !ok || principal != "" && rec.Principal != principal {
		return rec, dray.Errorf(dray.CodeNotFound, "no such call").WithHint("list them")
	}
	return rec, nil
}

func (t *fakeAudit) Claimed(context.Context, string, string) (dray.Record, string, error) {
	return dray.Record{}, "", dray.Errorf(dray.CodeNotFound, "no such key")
}

func (t *fakeAudit) List(_ context.Context, q audit.Query) (audit.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = q
	var all []dray.Record
	for _, rec := range t.records {
		if (q.Principal == "" || rec.Principal == q.Principal) &&
			(q.Only == nil || slices.Contains(q.Only, rec.ID)) {
			all = append(all, rec)
		}
	}
	slices.SortFunc(all, func(a, b dray.Record) int { return strings.Compare(b.ID, a.ID) })
	return audit.Page{Items: all[:min(len(all), q.Limit)], NextCursor: "next"}, nil
}

func (t *fakeAudit) Stats(_ context.Context, _ audit.StatsKey, q audit.Query,
) ([]dray.Stat, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = q
	return []dray.Stat{{Key: "exec", Calls: 2, Failed: 1, P50MS: new(1.5)}}, nil
}

func (t *fakeAudit) LastSeq(context.Context) (int64, error) { return 7, nil }

func (t *fakeAudit) Follow(ctx context.Context, q audit.FollowQuery, to audit.Follower) error {
	t.mu.Lock()
	t.listed, t.begun = q.Query, q.Begun
	t.mu.Unlock()
	if err := to.Followed(q.After+1, dray.Record{ID: someID, Tool: "exec"}); err != nil {
		return err
	}
	if err := to.Waiting(); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (t *fakeAudit) Export(ctx context.Context, q audit.Query, to audit.Exporter) error {
	q.Limit = 1000
	p, _ := t.List(ctx, q)
	for _, rec := range p.Items {
		if err := to.Call(rec); err != nil {
			return err
		}
	}
	return t.exportErr
}

func (t *fakeAudit) Changes(_ context.Context, q audit.ChangeQuery) (audit.ChangePage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = q
	return audit.ChangePage{}, nil
}

func (t *fakeAudit) Events(_ context.Context, q audit.EventQuery) (audit.EventPage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eventQuery = q
	return audit.EventPage{}, nil
}

func (t *fakeAudit) record(_ context.Context, body audit.Body) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, body)
	return t.recordErr
}

func (t *fakeAudit) reject(principal string, code dray.Code) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rejected = append(t.rejected, principal+" "+string(code))
}

// captures are captured streams by id and name.
type captures map[string][]byte

func (c captures) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	b, ok := c[id+"."+stream.String()]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return memoryFile{bytes.NewReader(b)}, nil
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

type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

func (p *fakeDeps) List() []*dray.Tool { return slices.Collect(maps.Values(p.tools)) }

func (p *fakeDeps) Find(name string) (*dray.Tool, error) {
	return p.Get(context.Background(), name)
}

func (p *fakeDeps) State(_ context.Context, name string) (tool.State, error) {
	return p.states.Of(name), nil
}

func (p *fakeDeps) SetState(ctx context.Context, principal, name string, state tool.State) error {
	return p.states.Set(ctx, principal, name, state)
}

func (p *fakeDeps) Get(_ context.Context, name string) (*dray.Tool, error) {
	t, ok := p.tools[name]
	if !ok {
		return nil, dray.Errorf(dray.CodeUnknownTool, "no such tool: %s", name).WithHint("GET /v1/tools")
	}
	found := *t
	found.CheckInput = p.checkInput
	return &found, nil
}

func (p *fakeDeps) Route(_ context.Context, inv dray.Invocation, _ dray.Requirement,
) (dray.Route, error) {
	return p.route(inv)
}

func (p *fakeDeps) Check(context.Context, dray.Route, dray.Invocation, bool) error { return nil }

type fakeWorkspaces struct{ *fakeDeps }

func (w fakeWorkspaces) ToolFolders() ([]string, error) { return nil, nil }

func (w fakeWorkspaces) List(context.Context) ([]workspace.Info, error) {
	return []workspace.Info{{ID: "app", Folder: "/home/me/app", State: workspace.Stopped}}, nil
}

func (fakeWorkspaces) Register(_ context.Context, name string, reg workspace.Registration,
) (workspace.ContainerState, error) {
	if reg.ID == "taken" {
		return workspace.ContainerState{}, dray.Errorf(dray.CodeConflict, "taken").WithHint("another")
	}
	return workspace.ContainerState{Name: name, ID: reg.ID + reg.Label, State: workspace.Running}, nil
}

func (fakeWorkspaces) Unregister(name string) error {
	if name != "db" {
		return dray.Errorf(dray.CodeNotFound, "no container is registered as %q", name).WithHint("ls")
	}
	return nil
}

func (w fakeWorkspaces) Containers(context.Context) ([]workspace.ContainerState, error) {
	return []workspace.ContainerState{{Name: "db", ID: "0123", State: workspace.Running}}, nil
}

func (w fakeWorkspaces) Run(ctx context.Context, action workspace.Action, id string,
	progress func(string, string),
) (workspace.Info, error) {
	return w.workspaces(ctx, action, id, progress)
}

func (fakeWorkspaces) Review(_ context.Context, id string) (trust.Review, error) {
	return trust.Review{Summary: trust.Summary{Workspace: id, Hash: "sha256:1"}}, nil
}

func (fakeWorkspaces) Trust(_ context.Context, id, hash string) (workspace.Info, error) {
	if hash != "sha256:1" {
		return workspace.Info{}, dray.Errorf(dray.CodeConflict, "another hash").WithHint("look again")
	}
	return workspace.Info{Folder: id, Trusted: true}, nil
}

func (fakeWorkspaces) Revoke(_ context.Context, id string) (workspace.Info, error) {
	return workspace.Info{Folder: id}, nil
}

func (w fakeWorkspaces) Mounts(_ context.Context, folder, _ string) ([]dray.Mount, error) {
	if w.mountsPanic {
		panic("no mounts")
	}
	if folder != "/w" {
		return nil, dray.Errorf(dray.CodeWorkspaceNotFound, "no such workspace").WithHint("use /w")
	}
	return w.mounts, nil
}

// daemon is a server on a real socket.
type daemon struct {
	*fakeDeps
	t      testing.TB
	server *api.Server
	socket string
	client *http.Client
	logs   *observer.ObservedLogs
}

// Reload implements [api.Daemon].
func (p *fakeDeps) Reload(context.Context, string) (api.Reload, error) {
	return api.Reload{Changed: []string{"tools"}}, nil
}

// Prune implements [api.Daemon].
func (p *fakeDeps) Prune(_ context.Context, opts audit.PruneOptions) (audit.PruneReport, error) {
	if opts.Progress != nil {
		opts.Progress(audit.Pruning{Calls: 2, Events: 5})
	}
	return audit.PruneReport{Pruning: audit.Pruning{Before: opts.Before, Principal: opts.Principal}}, nil
}

// Status implements [api.Daemon].
func (p *fakeDeps) Status(context.Context) api.Status {
	return api.Status{Version: "test", Engine: api.EngineStatus{Error: dray.AsError(io.EOF)}}
}

// start serves until the end of the test.
func start(t testing.TB, change func(*fakeDeps)) *daemon {
	t.Helper()
	d := build(t, change)
	d.serve()
	return d
}

// build returns a daemon that does not listen yet.
func build(t testing.TB, change func(*fakeDeps)) *daemon {
	t.Helper()
	p := &fakeDeps{
		audit: &fakeAudit{records: map[string]dray.Record{}},
		run:   succeed,
		tools: map[string]*dray.Tool{
			"exec": {
				Name: "exec", Description: "runs argv", InputSchema: json.RawMessage(`{"type":"object"}`),
				AcceptsStdin: true,
			},
			"greet": {
				Name: "greet", Description: "greets", InputSchema: json.RawMessage(`{"type":"object"}`),
			},
		},
		checkInput: func(json.RawMessage) error { return nil },
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
	log := zap.New(core)
	executor := p.audit.Executor(call.Recorded(p.run))
	if p.executor != nil {
		executor = p.executor(executor)
	}
	cfg := api.Config{
		Configured: api.Configured{Tools: p, Intake: &call.Intake{
			Tools: p, Router: p, Environments: p, MaxTimeout: time.Hour,
			Budgets: call.NewBudgets(nil, nil),
		}},
		Calls: call.NewRegistry(call.Options{
			Executor: executor, Open: p.captures.OpenAuto, Log: log, Claims: p.audit,
		}),
		Audit: p.audit, Prover: noProver{}, Workspaces: fakeWorkspaces{p}, Captures: p.captures, Daemon: p, Approvals: noApprovals{}, Record: p.audit.record,
		Rejected: p.audit.reject,
		Log:      log,
		MaxBody:  p.maxBody, BodyDir: t.TempDir(), Ready: p.ready, Version: "test",
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
	l, err := unixsock.Listen(context.Background(), d.socket, nil, nil)
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
		cancel() // cancel what still runs
		if err := d.server.Shutdown(ctx); err != nil {
			d.t.Error(err)
		}
		if err := <-served; err != nil {
			d.t.Error(err)
		}
	})
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the body of an error.
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

// request returns a request. Headers are "Name: value". A body gets the content type of JSON unless
// they have another.
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

// do sends a request and reads the whole response.
func (d *daemon) do(method, path, body string, headers ...string) answer {
	d.t.Helper()
	return d.send(d.request(method, path, body, headers...))
}

// doAs sends a request of a principal, not over the socket.
func (d *daemon) doAs(principal, method, path, body string) answer {
	d.t.Helper()
	req := d.request(method, path, body)
	req.URL.Host, req.URL.Scheme = "", "" // as a server has it
	w := httptest.NewRecorder()
	d.server.ServeHTTP(w, req.WithContext(api.AsPrincipal(d.t.Context(), principal)))
	return answer{w.Code, w.Header(), w.Body.Bytes()}
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

// record decodes the invocation in a response.
func (a answer) record(t testing.TB) dray.Record {
	t.Helper()
	var rec dray.Record
	if err := json.Unmarshal(a.body, &rec); err != nil {
		t.Fatalf("%v in %d %s", err, a.status, a.body)
	}
	return rec
}

// problem decodes the error in a response.
func (a answer) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("Content-Type %q of an error: %d %s", got, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// noApprovals has no approvals.
type noApprovals struct{}

func (noApprovals) List(context.Context, string, audit.ApprovalState) ([]audit.Approval, error) {
	return []audit.Approval{}, nil
}

func (noApprovals) Get(context.Context, string, string) (audit.Approval, error) {
	return audit.Approval{}, dray.Errorf(dray.CodeNotFound, "no such approval")
}

func (noApprovals) Decide(context.Context, string, string, approval.Verdict) (audit.Approval,
	error,
) {
	return audit.Approval{}, dray.Errorf(dray.CodeNotFound, "no such approval")
}
