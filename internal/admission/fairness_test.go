package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// A client that sends calls without end delays only itself: nobody else's calls are refused, their
// 99th percentile does not double, and the queue is bounded. Clients are workspaces of one
// principal, or principals (SS-07).
func TestFairness(t *testing.T) {
	for name, callOf := range map[string]func(client int) dray.Call{
		"workspaces": func(client int) (c dray.Call) {
			c.Route = dray.Route{Environment: dray.KindHost, Workspace: fmt.Sprint("/w", client)}
			return c
		},
		"principals": func(client int) (c dray.Call) {
			c.Route, c.Invocation.Principal = host, fmt.Sprint("token:", client)
			return c
		},
		"principals, one with many workspaces": func(client int) (c dray.Call) {
			c.Route, c.Invocation.Principal = host, fmt.Sprint("token:", client)
			if client == greedy {
				c.Route.Workspace = fmt.Sprint("/w", nextWorkspace.Add(1)%100)
			}
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alone, _ := serveClients(t, callOf, 0)
				beside, refused := serveClients(t, callOf, 500)
				t.Logf("99th percentile %v alone, %v beside the greedy client; %d of its calls refused",
					alone, beside, refused)
				if beside > 2*alone {
					t.Errorf("99th percentile %v, and %v without the greedy client", beside, alone)
				}
				if refused == 0 {
					t.Error("the greedy client was never refused: the test proves nothing")
				}
			})
		})
	}
}

const (
	greedy        = 0
	politeClients = 63
)

var nextWorkspace atomic.Int64

// serveClients makes 63 polite clients send one call after another, and the greedy one as many at
// once as given. It returns the 99th percentile of the time that polite calls took, by a virtual
// clock, and how often the greedy client was refused.
func serveClients(t *testing.T, callOf func(client int) dray.Call, atOnce int) (p99 time.Duration,
	refused int,
) {
	limits := Limits{Concurrent: 16, PerContainer: 8, Queue: 128}
	g := New(limits)
	var inside atomic.Int64
	e := g.Executor(dray.ExecutorFunc(func(ctx context.Context, _ dray.Call, sink dray.Sink) (
		dray.Result, error,
	) {
		defer inside.Add(-1)
		if n := inside.Add(1); n > int64(limits.Concurrent+2*limits.Queue) {
			t.Errorf("%d calls are admitted", n)
		}
		leave, _, err := g.Acquire(ctx, hostID, sink)
		if err != nil {
			return dray.Result{}, err
		}
		defer leave()
		time.Sleep(10 * time.Millisecond)
		return dray.Result{}, nil
	}))
	done, stop := context.WithCancel(t.Context())
	defer stop()
	var load, polite sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for range atOnce {
		load.Go(func() {
			for done.Err() == nil {
				_, err := e.Execute(t.Context(), callOf(greedy), dray.Discard)
				if retry, ok := errors.AsType[retryAfterError](err); ok && retry.after >= time.Second {
					mu.Lock()
					refused++
					mu.Unlock()
					time.Sleep(20 * time.Millisecond) // it does not follow the advice
				} else if err != nil {
					t.Errorf("without advice: %v", err)
				}
			}
		})
	}
	for i := range politeClients {
		polite.Go(func() {
			for range soakreport.Count(10_000, 500) / politeClients {
				begun := time.Now()
				if _, err := e.Execute(t.Context(), callOf(i+1), dray.Discard); err != nil {
					t.Errorf("client %d: %v", i+1, err)
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	polite.Wait()
	stop()
	load.Wait()
	slices.Sort(took)
	(&fixture{t: t, gate: g}).empty()
	return took[len(took)*99/100], refused
}
