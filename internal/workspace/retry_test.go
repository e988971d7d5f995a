package workspace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// attempt is what one attempt of a call does.
type attempt struct {
	started, output bool
	kill            *dray.KillReport
	code            dray.Code
	takes           time.Duration
}

func (a attempt) run(ctx context.Context, sink dray.Sink) (dray.Result, error) {
	if a.started {
		sink.Started()
	}
	if a.output {
		sink.Output(dray.Stdout, []byte("x"))
	}
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return dray.Result{Reason: dray.ReasonCancelled, Error: &dray.Error{Message: "cut"}}, nil
	}
	res := dray.Result{Metadata: dray.Metadata{Kill: a.kill}}
	if a.code != "" {
		return res, dray.Errorf(a.code, "failed")
	}
	res.Reason = dray.ReasonExited
	return res, nil
}

var (
	provenNone = &dray.KillReport{Survivors: dray.Survivors{Proven: true}}
	oneLeft    = &dray.KillReport{Survivors: dray.Survivors{Proven: true, PIDs: []int{7}}}
	unknown    = &dray.KillReport{}
)

// Which attempts are repeated (RE-02).
func TestRetries(t *testing.T) {
	notStarted := attempt{code: dray.CodeContainerUnavailable}
	ok := attempt{started: true, kill: provenNone}
	for name, tt := range map[string]struct {
		attempts []attempt
		stdin    io.Reader
		once     bool // the tool is not idempotent
		reads    bool // it is read-only
		want     int  // attempts
	}{
		"succeeds at once":          {attempts: []attempt{ok}, want: 1},
		"not started":               {attempts: []attempt{notStarted, ok}, want: 2},
		"engine away":               {attempts: []attempt{{code: dray.CodeEngineUnavailable}, ok}, want: 2},
		"not idempotent":            {attempts: []attempt{notStarted, ok}, once: true, want: 1},
		"read-only":                 {attempts: []attempt{notStarted, ok}, reads: true, want: 2},
		"fails always":              {attempts: []attempt{notStarted, notStarted, notStarted, ok}, want: 3},
		"proven to have ended":      {attempts: []attempt{{started: true, kill: provenNone, code: dray.CodeAgentLost}, ok}, want: 2},
		"with output":               {attempts: []attempt{{started: true, output: true, kill: provenNone, code: dray.CodeAgentLost}, ok}, want: 1},
		"a process is left":         {attempts: []attempt{{started: true, kill: oneLeft, code: dray.CodeAgentLost}, ok}, want: 1},
		"its end is unknown":        {attempts: []attempt{{started: true, kill: unknown, code: dray.CodeAgentLost}, ok}, want: 1},
		"started without a report":  {attempts: []attempt{{started: true, code: dray.CodeContainerUnavailable}, ok}, want: 1},
		"perhaps started":           {attempts: []attempt{{code: dray.CodeAgentLost}, ok}, want: 1},
		"no infrastructure":         {attempts: []attempt{{code: dray.CodeExecutableNotFound}, ok}, want: 1},
		"untrusted":                 {attempts: []attempt{{code: dray.CodeWorkspaceUntrusted}, ok}, want: 1},
		"up failed":                 {attempts: []attempt{{code: dray.CodeContainerFailed}, ok}, want: 1},
		"stdin that can be rewound": {attempts: []attempt{notStarted, ok}, stdin: strings.NewReader("x"), want: 2},
		"stdin that cannot": {
			attempts: []attempt{notStarted, ok}, stdin: bufio.NewReader(strings.NewReader("x")), want: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := 0
				e := Retries{Attempts: 3, Budget: time.Minute}.Executor(dray.ExecutorFunc(
					func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
						done++
						if call.Stdin != nil {
							if b, err := io.ReadAll(call.Stdin); err != nil || string(b) != "x" {
								t.Errorf("attempt %d reads %q, %v", done, b, err)
							}
						}
						return tt.attempts[done-1].run(ctx, sink)
					}))
				res, err := e.Execute(t.Context(), dray.Call{
					Tool: &dray.Tool{
						Idempotent:   !tt.once && !tt.reads,
						Capabilities: dray.ToolCapabilities{ReadOnly: tt.reads},
					}, Stdin: tt.stdin,
				}, dray.Discard)
				last := tt.attempts[tt.want-1].code
				if done != tt.want || dray.CodeOf(err) != last || len(res.Metadata.Retries) != tt.want-1 {
					t.Errorf("%d attempts, want %d; %v, %+v", done, tt.want, err, res.Metadata.Retries)
				}
			})
		})
	}
}

// An attempt that has not started when the budget has elapsed is cut off, and the call ends with
// the failure before it. One that has started goes on. A cancelled call is not repeated (RE-02).
func TestRetries_BudgetAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := attempt{code: dray.CodeContainerUnavailable}
		run := func(second attempt, cancelAfter time.Duration) (attempts int, took time.Duration,
			res dray.Result, err error,
		) {
			ctx, cancel := context.WithTimeout(t.Context(), cancelAfter)
			defer cancel()
			begun := time.Now()
			e := Retries{Attempts: 3, Budget: time.Second}.Executor(dray.ExecutorFunc(
				func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
					attempts++
					return []attempt{failed, second}[attempts-1].run(ctx, sink)
				}))
			res, err = e.Execute(ctx, dray.Call{Tool: &dray.Tool{Idempotent: true}}, dray.Discard)
			return attempts, time.Since(begun), res, err
		}
		n, took, res, err := run(attempt{takes: time.Hour}, 2*time.Hour)
		if n != 2 || took != time.Second || dray.CodeOf(err) != failed.code || res.Reason != "" {
			t.Errorf("cut off: %d attempts, %v, %v, %+v", n, took, err, res)
		}
		n, took, res, err = run(attempt{started: true, takes: time.Hour, kill: provenNone}, 2*time.Hour)
		if n != 2 || took < time.Hour || err != nil || res.Reason != dray.ReasonExited {
			t.Errorf("started: %d attempts, %v, %v, %+v", n, took, err, res)
		}
		if n, _, _, err = run(attempt{}, 50*time.Millisecond); n != 1 || err == nil {
			t.Errorf("cancelled in the pause: %d attempts, %v", n, err)
		}
	})
}

// The breaker of one container opens after failures in a row, lets one call try at a time when the
// time is over, and closes by a success. Only infrastructure counts, and a cancelled call shows
// nothing (RE-03).
func TestBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(3, time.Minute, zap.NewNop())
		next := attempt{}
		reached := 0
		e := b.Executor(dray.ExecutorFunc(
			func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
				reached++
				res, err := next.run(ctx, sink)
				if err == nil || dray.CodeOf(err) == dray.CodeExecutableNotFound {
					res.Metadata.Container = &dray.ContainerMetadata{}
				}
				return res, err
			}))
		route := dray.Route{Environment: dray.KindContainer, Container: "box"}
		call := func(r dray.Route, code dray.Code) error {
			next = attempt{code: code}
			_, err := e.Execute(t.Context(), dray.Call{Route: r}, dray.Discard)
			return err
		}
		want := func(state BreakerState, calls int) {
			t.Helper()
			if b.State("box") != state || reached != calls {
				t.Fatalf("%s after %d calls, want %s after %d", b.State("box"), reached, state, calls)
			}
		}
		for _, code := range []dray.Code{
			dray.CodeAgentLost, dray.CodeAgentLost, dray.CodeExecutableNotFound, // which reached it
			dray.CodeEngineUnavailable, dray.CodeContainerFailed, dray.CodeContainerUnavailable,
		} {
			_ = call(route, code)
		}
		want(BreakerClosed, 6)
		_ = call(route, dray.CodeAgentLost)
		want(BreakerOpen, 7)
		if err := call(route, ""); dray.CodeOf(err) != dray.CodeContainerUnavailable ||
			dray.AsError(err).Hint == "" {
			t.Error(err)
		}
		if b.Check(route) == nil {
			t.Error("the dry run does not refuse")
		}
		want(BreakerOpen, 7)
		for _, other := range []dray.Route{
			{Environment: dray.KindHost}, {Environment: dray.KindContainer, Container: "other"},
		} {
			if err := call(other, ""); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		want(BreakerHalfOpen, 9)
		ctx, cancel := context.WithCancel(t.Context())
		next = attempt{takes: time.Hour}
		ended := make(chan struct{})
		go func() {
			_, _ = e.Execute(ctx, dray.Call{Route: route}, dray.Discard)
			close(ended)
		}()
		synctest.Wait()
		if call(route, "") == nil {
			t.Error("a second call tries at once")
		}
		cancel()
		<-ended
		want(BreakerHalfOpen, 10)
		_ = call(route, dray.CodeAgentLost)
		want(BreakerOpen, 11)
		time.Sleep(time.Minute)
		if err := call(route, ""); err != nil {
			t.Error(err)
		}
		want(BreakerClosed, 12)
	})
}

// Names that callers make up while the engine is away use bounded memory (EX-13).
func TestBreakers_Bounded(t *testing.T) {
	b := NewBreakers(3, time.Minute, zap.NewNop())
	for i := range 5 * maxBreakers {
		b.fail(fmt.Sprint(i), "away")
	}
	if len(b.targets) > maxBreakers {
		t.Errorf("%d breakers", len(b.targets))
	}
}
