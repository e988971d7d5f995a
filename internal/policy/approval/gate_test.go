package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/policy/approval"
)

// crashVar names the directory of the audit log for the process that is killed.
const crashVar = "DRAY_TEST_APPROVAL_CRASH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashVar); dir != "" {
		useAndCrash(dir)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

type asks struct{}

func (asks) Decide(context.Context, dray.Call) policy.Decision {
	return policy.Decision{Effect: policy.Ask, Reasons: []string{"a test asks"}}
}

// opened is a gate on a real audit log, with a clock that the test sets.
type opened struct {
	gate       *approval.Gate
	store      *audit.Store
	now        time.Time
	definition string // of the tool
	route      dray.Route
}

func open(dir string) (*opened, error) {
	store, _, err := audit.Open(context.Background(), audit.Options{
		Path: filepath.Join(dir, "audit.db"), CapturesDir: filepath.Join(dir, "captures"),
		Log: zap.NewNop(),
	})
	o := &opened{store: store, now: time.Now(), route: dray.Route{Environment: dray.KindHost}}
	o.gate = approval.New(approval.Config{
		Log: store, Key: make([]byte, 32), Principal: "uid:1", Now: func() time.Time { return o.now },
		Lifetime: func() time.Duration { return time.Hour },
		Session:  func(dray.Call) (dray.SessionState, bool) { return dray.SessionState{}, false },
	})
	return o, err
}

// run runs the same call each time, under another id, and then does act.
func (o *opened) run(act func()) error {
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		act()
		return dray.Result{}, nil
	})
	res, err := o.store.Executor(o.gate.Executor(asks{}, next)).Execute(context.Background(), dray.Call{
		Invocation: dray.Invocation{
			ID: uuid.Must(uuid.NewV7()).String(), Tool: "deploy", Input: json.RawMessage(`{}`),
			Principal: "uid:1",
		},
		Tool: &dray.Tool{Name: "deploy", Definition: o.definition}, Route: o.route,
	}, dray.Discard)
	if err == nil && res.Error != nil {
		return res.Error
	}
	return err
}

// newest returns the newest approval.
func (o *opened) newest(t *testing.T) audit.Approval {
	t.Helper()
	all, err := o.gate.List(t.Context(), "", "")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all[0]
}

func (o *opened) approve() error {
	all, err := o.gate.List(context.Background(), "", audit.ApprovalPending)
	if err != nil {
		return err
	}
	_, err = o.gate.Decide(context.Background(), "", all[0].ID,
		approval.Verdict{Approve: true, Principal: "uid:1", Via: "http"})
	return err
}

// useAndCrash kills its process after the approval was used and before the call starts. It returns
// if it fails.
func useAndCrash(dir string) {
	o, err := open(dir)
	if err != nil {
		return
	}
	_ = o.run(func() {}) // asks
	if err := o.approve(); err == nil {
		_ = o.run(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	}
}

func mustOpen(t *testing.T, dir string) *opened {
	t.Helper()
	o, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.store.Close(context.Background()) })
	return o
}

// A daemon that is killed between the use of an approval and the start of its call does not run the
// call after its restart: that would be twice (SE-04).
func TestUsedApprovalSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashVar+"="+dir)
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if status, _ := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the process was not killed: %v", err)
	}
	o := mustOpen(t, dir)
	used := o.newest(t)
	if used.State != audit.ApprovalUsed {
		t.Fatalf("the approval is %s", used.State)
	}
	ran := false
	err = o.run(func() { ran = true })
	if dray.CodeOf(err) != dray.CodeApprovalRequired || ran || o.newest(t).ID == used.ID {
		t.Errorf("the repeated call: %v, ran %v", err, ran)
	}
}

// An approval that was given and not used until its end lets no call run, by the clock of the gate
// (SE-04).
func TestApprovedCallExpires(t *testing.T) {
	o := mustOpen(t, t.TempDir())
	_ = o.run(func() {})
	first := o.newest(t)
	if err := o.approve(); err != nil {
		t.Fatal(err)
	}
	o.now = first.ExpiresAt
	ran := false
	err := o.run(func() { ran = true })
	if dray.CodeOf(err) != dray.CodeApprovalRequired || ran {
		t.Errorf("%v, ran %v", err, ran)
	}
	if got, err := o.gate.Get(t.Context(), "", first.ID); err != nil ||
		got.State != audit.ApprovalExpired || o.newest(t).ID == first.ID {
		t.Errorf("the first approval is %s, %v", got.State, err)
	}
}

// A call that names no workspace, as those of MCP clients, shows the one that it is routed to
// (SE-04).
func TestApprovalShowsRoutedWorkspace(t *testing.T) {
	o := mustOpen(t, t.TempDir())
	o.route = dray.Route{Environment: dray.KindContainer, Workspace: "/home/me/app"}
	_ = o.run(func() {})
	var r approval.Request
	if err := json.Unmarshal(o.newest(t).Request, &r); err != nil {
		t.Fatal(err)
	}
	if r.Place() != "container of /home/me/app" {
		t.Errorf("the call runs in %q", r.Place())
	}
}

// A decision that comes too late says what to do (SE-04).
func TestDecisionAboutExpiredApproval(t *testing.T) {
	o := mustOpen(t, t.TempDir())
	_ = o.run(func() {})
	first := o.newest(t)
	o.now = first.ExpiresAt
	_, err := o.gate.Decide(t.Context(), "", first.ID,
		approval.Verdict{Approve: true, Principal: "uid:1", Via: "http"})
	if e := dray.AsError(err); e.Code != dray.CodeConflict ||
		e.Hint != "let the caller repeat the call: it asks again" {
		t.Errorf("%v, hint %q", err, e.Hint)
	}
}

// An approval is not of another definition of the tool, which a reload may bring (SE-04).
func TestApprovalOfAnotherDefinition(t *testing.T) {
	o := mustOpen(t, t.TempDir())
	_ = o.run(func() {})
	if err := o.approve(); err != nil {
		t.Fatal(err)
	}
	o.definition = "another"
	ran := false
	if err := o.run(func() { ran = true }); dray.CodeOf(err) != dray.CodeApprovalRequired || ran {
		t.Errorf("%v, ran %v", err, ran)
	}
}
