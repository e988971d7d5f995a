package python

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// churn is one run of many callers against few workers.
type churn struct {
	t        *testing.T
	s        *Sessions
	f        *fakeRuntime
	sessions []churnSession
	calls    atomic.Int64
	busy     atomic.Int64
}

// churnSession counts what one session may report.
type churnSession struct {
	mu         sync.Mutex
	generation uint32 // of the last reply
	replied    bool
	resets     int
}

// Many callers use more sessions than there are workers, while workers crash, hang, ignore
// interrupts, and sessions are reset. There are never more workers than slots, each call ends, no
// worker that runs or starts is evicted, and a reply of another worker than the last one reports
// the loss of its state (PY-07, PY-25).
func TestSessions_Churn(t *testing.T) {
	const resident, callers = 8, 64
	f := &fakeRuntime{execute: churnWork, holdsFiles: true} // the session is held until Release
	c := &churn{t: t, f: f, sessions: make([]churnSession, 200)}
	c.s = newSessions(t, f, func(o *Options) {
		o.Resident[RuntimeContainer] = resident
		o.Queue = callers
		o.Idle = 50 * time.Microsecond
	})
	seed := soakreport.Rand(t)
	perCaller := soakreport.Count(2000, 150)
	var running sync.WaitGroup
	for range callers {
		rnd := rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))
		running.Go(func() {
			for range perCaller {
				c.step(rnd)
			}
		})
	}
	running.Wait()
	c.s.Close()
	if most := f.mostAlive.Load(); most > resident {
		t.Errorf("%d workers at a time", most)
	}
	if n := c.calls.Load(); n < int64(callers*perCaller)/2 {
		t.Errorf("%d of %d calls ran, %d were refused", n, callers*perCaller, c.busy.Load())
	}
	for key, sess := range c.s.sessions {
		if sess.holder != nil || sess.resident != nil || len(sess.queue) > 0 {
			t.Errorf("%s is not over: %s", key.Name, sess.state())
		}
	}
	p := c.s.pools[RuntimeContainer]
	if p.used+p.ending+p.waiting+len(p.queue)+len(p.residents) != 0 {
		t.Errorf("slots are left: %+v", p)
	}
}

// Close during calls that wait, start and run ends all of them, and leaves no worker.
func TestSessions_CloseDuringChurn(t *testing.T) {
	rnd := soakreport.Rand(t)
	for range soakreport.Count(500, 30) {
		f := &fakeRuntime{execute: churnWork}
		s := newSessions(t, f)
		stop := rnd.IntN(200)
		var ended atomic.Int64
		var callers sync.WaitGroup
		for n := range 16 {
			callers.Go(func() {
				for {
					run, err := s.Start(context.Background(), keyOf(fmt.Sprint("s", n%5)), nil, CallSpec{})
					if dray.CodeOf(err) == dray.CodeShuttingDown {
						return
					}
					run.Release()
					ended.Add(1)
				}
			})
		}
		for ended.Load() < int64(stop) {
			runtime.Gosched()
		}
		s.Close()
		if n := f.alive.Load(); n != 0 {
			t.Fatalf("%d workers are left", n)
		}
		callers.Wait()
	}
}

// churnWork answers a request, crashes, writes nonsense or hangs, as its name says.
func churnWork(w *fakeWorker, e *fakeExecution) {
	switch e.req.Name {
	case "crash":
		w.stop(dray.Exit{Signal: syscall.SIGSEGV}, errWorkerEnded)
	case "breach":
		w.stop(dray.Exit{Signal: syscall.SIGKILL}, protocolError("test"))
	case "hang":
		<-e.done
	case "wait":
		<-e.interrupted
		e.reply(1)
	case "idle crash":
		e.reply(0)
		w.stop(dray.Exit{Code: 1}, errWorkerEnded)
	default:
		runtime.Gosched()
		e.reply(0)
	}
}

// step makes one call in a random session, or resets it.
func (c *churn) step(rnd *rand.Rand) {
	n := rnd.IntN(len(c.sessions))
	key := keyOf(fmt.Sprint("s", n))
	if rnd.IntN(50) == 0 {
		c.reset(n, key)
		return
	}
	kinds := []string{"crash", "breach", "hang", "wait", "idle crash"}
	spec := CallSpec{}
	if k := rnd.IntN(60); k < len(kinds) {
		spec.Request.Name = kinds[k]
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if rnd.IntN(30) == 0 {
		time.AfterFunc(time.Duration(rnd.IntN(200))*time.Microsecond, func() { cancel(errGivenUp) })
	}
	resets := c.resetsOf(n)
	run, err := c.s.Start(ctx, key, nil, spec)
	switch {
	case err == nil:
		c.finish(n, resets, run, spec.Request.Name)
	case dray.CodeOf(err) == dray.CodeBusy:
		c.busy.Add(1)
	case !errors.Is(err, errGivenUp) && dray.CodeOf(err) != dray.CodeConflict && !isLost(err):
		c.t.Errorf("start: %v", err)
	}
}

func (c *churn) resetsOf(n int) int {
	c.sessions[n].mu.Lock()
	defer c.sessions[n].mu.Unlock()
	return c.sessions[n].resets
}

var errGivenUp = errors.New("given up")

func (c *churn) reset(n int, key Key) {
	sess := &c.sessions[n]
	sess.mu.Lock()
	defer sess.mu.Unlock()
	_, err := c.s.Reset(context.Background(), key)
	if err != nil && dray.CodeOf(err) != dray.CodeNotFound {
		c.t.Errorf("reset: %v", err)
	}
	sess.replied = false // the next worker has nothing to report
	sess.resets++
}

// finish ends a call and compares what it says of the session with its last reply.
func (c *churn) finish(n, resets int, run *Run, kind string) {
	defer run.Release()
	c.calls.Add(1)
	if kind == "hang" || kind == "wait" {
		run.Stop(time.Microsecond)
	}
	exit, err := run.Wait()
	_, replied := run.Reply()
	if replied != (err == nil && exit.Signal == 0) {
		c.t.Errorf("%q ended with %+v, %v and a reply %t", kind, exit, err, replied)
	}
	if info := run.Session(); info.DiscardedState && info.Generation == 1 {
		c.t.Errorf("the first worker reports a loss: %+v", info)
	}
	if !replied {
		return
	}
	sess := &c.sessions[n]
	sess.mu.Lock()
	defer sess.mu.Unlock()
	info := run.Session()
	switch changed := sess.replied && info.Generation != sess.generation; {
	case changed && !info.DiscardedState:
		c.t.Errorf("a loss was not reported: %d after %d", info.Generation, sess.generation)
	case sess.replied && !changed && info.DiscardedState:
		c.t.Errorf("a loss was reported for the worker of the last reply: %+v", info)
	}
	sess.replied, sess.generation = sess.resets == resets, info.Generation
}
