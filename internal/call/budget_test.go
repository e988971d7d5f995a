package call_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

// budgetsOf returns the budgets of plan p, which has used something before.
func budgetsOf(limit, used dray.PlanUsage) *call.Budgets {
	return call.NewBudgets(map[string]dray.PlanUsage{"p": limit},
		func(context.Context, string) (dray.PlanUsage, error) { return used, nil })
}

func callOf(plan string) dray.Call {
	return dray.Call{Invocation: dray.Invocation{Context: dray.CallContext{PlanID: plan}}}
}

// Of many calls at once exactly those that the budget has left run, and the dry run says when it is
// used up (RT-11).
func TestBudget_ExactUnderConcurrency(t *testing.T) {
	b := budgetsOf(dray.PlanUsage{Calls: 12}, dray.PlanUsage{Calls: 5})
	var ran, refused atomic.Int64
	e := b.Executor(dray.ExecutorFunc(
		func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			ran.Add(1)
			return dray.Result{}, nil
		}))
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			_, err := e.Execute(t.Context(), callOf("p"), dray.Discard)
			if dray.CodeOf(err) == dray.CodeBudgetExceeded {
				refused.Add(1)
			}
			if _, err := e.Execute(t.Context(), callOf("other"), dray.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if ran.Load() != 7+100 || refused.Load() != 93 {
		t.Errorf("%d calls ran, %d were refused", ran.Load(), refused.Load())
	}
	e2 := dray.AsError(b.Check(t.Context(), "p"))
	if e2 == nil || e2.Code != dray.CodeBudgetExceeded || e2.Hint == "" {
		t.Errorf("the dry run says %+v", e2)
	}
}

// Wall time counts while calls run, and bytes when they end (RT-11).
func TestBudget_WallAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budgetsOf(dray.PlanUsage{Wall: time.Minute, Bytes: 100}, dray.PlanUsage{Wall: time.Second})
		release := make(chan struct{})
		e := b.Executor(dray.ExecutorFunc(
			func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				<-release
				return dray.Result{
					Duration: 20 * time.Second, Stdout: dray.StreamSummary{TotalBytes: 40},
				}, nil
			}))
		run := func() { _, _ = e.Execute(t.Context(), callOf("p"), dray.Discard) }
		want := func(code dray.Code) {
			t.Helper()
			if got := dray.CodeOf(b.Check(t.Context(), "p")); got != code {
				t.Errorf("got %q, want %q", got, code)
			}
		}
		go run()
		synctest.Wait()
		time.Sleep(20 * time.Second)
		want("")
		go run() // two run: 21 s are used, and each second counts twice
		synctest.Wait()
		time.Sleep(19 * time.Second)
		want("")
		time.Sleep(time.Second)
		want(dray.CodeBudgetExceeded)
		close(release)
		synctest.Wait()
		want("") // they took 20 s each
		run()
		want(dray.CodeBudgetExceeded) // 61 s
	})
	b := budgetsOf(dray.PlanUsage{Bytes: 100}, dray.PlanUsage{Bytes: 99})
	e := b.Executor(dray.ExecutorFunc(
		func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return dray.Result{Output: []byte("{}")}, nil
		}))
	_, first := e.Execute(t.Context(), callOf("p"), dray.Discard)
	_, second := e.Execute(t.Context(), callOf("p"), dray.Discard)
	if first != nil || dray.CodeOf(second) != dray.CodeBudgetExceeded {
		t.Errorf("got %v and %v", first, second)
	}
}

// A call that is refused for another reason before it is recorded uses nothing. A budget whose
// usage cannot be read refuses every call (RT-11).
func TestBudget_Refusals(t *testing.T) {
	b := budgetsOf(dray.PlanUsage{Calls: 1}, dray.PlanUsage{})
	fail := true
	r := registry(t, func(ctx context.Context, c dray.Call, s dray.Sink) (dray.Result, error) {
		return b.Executor(dray.ExecutorFunc(
			func(ctx context.Context, c dray.Call, s dray.Sink) (dray.Result, error) {
				if fail {
					return dray.Result{}, dray.Errorf(dray.CodeAuditUnavailable, "no")
				}
				return call.Recorded(dray.ExecutorFunc(succeed)).Execute(ctx, c, s)
			})).Execute(ctx, c, s)
	})
	var rejected []dray.Code
	for _, fail = range []bool{true, true, false, false} {
		c, err := r.Start(t.Context(), &call.Prepared{Invocation: callOf("p").Invocation})
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		rejected = append(rejected, dray.CodeOf(c.Rejected()))
	}
	if rejected[1] != dray.CodeAuditUnavailable || rejected[2] != "" ||
		rejected[3] != dray.CodeBudgetExceeded {
		t.Errorf("rejected: %q", rejected)
	}
	unknown := call.NewBudgets(map[string]dray.PlanUsage{"p": {Calls: 1}},
		func(context.Context, string) (dray.PlanUsage, error) {
			return dray.PlanUsage{}, errors.New("the disk is gone")
		})
	if err := unknown.Check(t.Context(), "p"); err == nil {
		t.Error("a budget with unknown usage is not used up")
	}
}
