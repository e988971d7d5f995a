package features

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/soakreport"
)

var fairnessPage = soakreport.Page{
	File:  "fairness.md",
	Title: "A greedy client beside 63 others",
	Text: "Each of 63 clients calls a tool on the host again and again over the socket, in a workspace\n" +
		"of its own, without and with one more client that sends 300 calls at once and repeats a refused\n" +
		"one after 20 ms. *Refused* counts its calls that were answered 429 with Retry-After, *others\n" +
		"refused* those of the 63. *Queued* is the largest number that /v1/status showed.",
	Target:  "the 99th percentile of the 63 at most doubles, none of them is refused, at most 256 are queued",
	Columns: []string{"calls of the 63", "99th percentile alone", "beside it", "refused", "others refused", "queued"},
	Key:     1,
}

const (
	fairConcurrent = 8
	fairQueue      = 128 // its half is the reserve of clients that have less than their share
	fairClients    = 63
	greedyAtOnce   = 300
	greedyPause    = 20 * time.Millisecond // it would take the processors of the machine else
)

// fairLoad is the load of all clients on a daemon.
type fairLoad struct {
	*daemon
	root, seconds string // the directory of the workspaces, and how long a call takes

	mu     sync.Mutex
	took   []time.Duration // of the calls of the 63
	polite struct{ refused atomic.Int64 }
	greedy struct{ served, servedAt90, refused atomic.Int64 }
	queued atomic.Int64 // the largest number
}

// call makes a call in a client's workspace.
func (l *fairLoad) call(ctx context.Context, client int) (answer, error) {
	return l.daemon.call(ctx, "", map[string]any{
		"tool": "exec", "input": map[string]any{"argv": []string{"sleep", l.seconds}},
		"workspace": fmt.Sprintf("%s/w%d", l.root, client),
	})
}

// serve makes the calls of the 63, and as many at once of the greedy client until these have ended.
func (l *fairLoad) serve(t *testing.T, calls, atOnce int) time.Duration {
	t.Helper()
	l.took = nil
	var polite, others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range atOnce {
		others.Go(func() { l.beGreedy(ctx, t) })
	}
	others.Go(func() { l.watchQueue(ctx, t) })
	for client := range fairClients {
		polite.Go(func() {
			for range calls / fairClients {
				l.bePolite(t, client+1, calls)
			}
		})
	}
	polite.Wait()
	stop()
	others.Wait()
	slices.Sort(l.took)
	return l.took[len(l.took)*99/100]
}

func (l *fairLoad) bePolite(t *testing.T, client, calls int) {
	begun := time.Now()
	a, err := l.call(t.Context(), client)
	if err != nil || a.at("/status") != "succeeded" {
		l.polite.refused.Add(1)
		t.Errorf("client %d: %v %s", client, err, a.raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(begun))
	if len(l.took) == calls*9/10 {
		l.greedy.servedAt90.Store(l.greedy.served.Load())
	}
}

// beGreedy makes one call after another and does not follow the advice to wait.
func (l *fairLoad) beGreedy(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		a, err := l.call(ctx, 0)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				t.Error(err)
			}
		case a.status == http.StatusTooManyRequests:
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			if err != nil || seconds < 1 || a.at("/code") != "busy" || a.at("/hint") == "" {
				t.Errorf("without advice: %s", a.raw)
			}
			l.greedy.refused.Add(1)
			select {
			case <-time.After(greedyPause):
			case <-ctx.Done():
			}
		case a.at("/status") == "succeeded":
			l.greedy.served.Add(1)
		default:
			t.Errorf("got %s", a.raw)
		}
	}
}

// watchQueue keeps the largest number of queued calls.
func (l *fairLoad) watchQueue(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		a, err := l.ask(ctx, http.MethodGet, "/v1/status", nil)
		if err != nil {
			break
		}
		queued, _ := strconv.ParseInt(fmt.Sprint(a.at("/calls/queued")), 10, 64)
		l.queued.Store(max(l.queued.Load(), queued))
	}
	if l.queued.Load() == 0 {
		t.Error("no queued call was seen")
	}
}

// A client that sends calls without end over HTTP delays only itself: nobody else's calls are
// refused, it gets its turn as everybody does, its other calls are busy with advice, and the queue
// is bounded (SS-07).
func TestFairnessOverHTTP(t *testing.T) {
	root := newDir(t)
	for client := range fairClients + 1 {
		if err := os.Mkdir(fmt.Sprintf("%s/w%d", root, client), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := startDaemon(t, strings.NewReplacer("ROOT", root, "CONCURRENT", strconv.Itoa(fairConcurrent),
		"QUEUE", strconv.Itoa(fairQueue)).Replace("host: {roots: [ROOT]}\nlimits: {concurrent: CONCURRENT, queue: QUEUE}\n"))
	calls := soakreport.Count(10_000, 252) / fairClients * fairClients
	// slots must be the bottleneck: where it is the processors, no polite client waits for its turn
	load := &fairLoad{daemon: d, root: root, seconds: "0.2"}
	if soakreport.Enabled() { // on a machine without other load
		load.seconds = "0.05"
	}
	var alone, beside time.Duration
	fairnessPage.Row(t, []string{strconv.Itoa(calls)}, func() []soakreport.Cell {
		return []soakreport.Cell{
			soakreport.Value(alone), soakreport.AtMost(beside, 2*alone),
			soakreport.Value(load.greedy.refused.Load()),
			soakreport.Exactly(load.polite.refused.Load(), 0),
			soakreport.AtMost(load.queued.Load(), 2*fairQueue),
		}
	})
	alone = load.serve(t, calls, 0)
	beside = load.serve(t, calls, greedyAtOnce)
	turns := int64(calls*9/10/fairClients + 1)
	if served := load.greedy.servedAt90.Load(); served > 3*turns+fairConcurrent || served == 0 {
		t.Errorf("the greedy client was served %d times, while each of the others had %d turns", served, turns)
	}
	if load.greedy.refused.Load() == 0 {
		t.Error("the greedy client was never refused: the test proves nothing")
	}
	if queued := load.queued.Load(); queued > 2*fairQueue {
		t.Errorf("%d calls were queued", queued)
	}
}
