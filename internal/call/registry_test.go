package call_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func registry(run dray.ExecutorFunc) *call.Registry {
	return call.New(call.Options{
		Executor: run, Log: zap.NewNop(),
		Open: func(string, dray.Stream) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist },
	})
}

func begin(t *testing.T, r *call.Registry, input string) *call.Call {
	t.Helper()
	c, err := r.Start(t.Context(), call.StartRequest{Invocation: dray.Invocation{
		Tool:      "exec",
		Principal: "me", Input: json.RawMessage(input),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func done(_ context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
	code := 0
	return dray.Result{Reason: dray.ReasonExited, ExitCode: &code}, nil
}

// Ended calls stay for some minutes, and only so many of them.
func TestEndedCallsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(done)
		first := begin(t, r, "{}")
		<-first.Done()
		synctest.Wait()
		if _, ok := r.Find(first.ID(), "me"); !ok {
			t.Error("a call that just ended is gone")
		}
		if _, ok := r.Find(first.ID(), "you"); ok {
			t.Error("another principal found it")
		}
		time.Sleep(5 * time.Minute)
		if _, ok := r.Find(first.ID(), "me"); ok {
			t.Error("it is still there")
		}
	})
}

func TestEndedCallsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		calls int
		kept  int
	}{
		"by number": {"{}", 300, 256},
		"by size":   {`{"a":"` + strings.Repeat("x", 24<<20) + `"}`, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := registry(done)
			var ids []string
			for range c.calls {
				call := begin(t, r, c.input)
				<-call.Done()
				ids = append(ids, call.ID())
			}
			kept := 0
			for i, id := range ids {
				if _, ok := r.Find(id, "me"); ok {
					kept++
				} else if i >= len(ids)-c.kept {
					t.Errorf("call %d of %d is gone", i+1, len(ids))
				}
			}
			if kept != c.kept {
				t.Errorf("%d are kept", kept)
			}
		})
	}
}

// OP-01: what does not end when it is cancelled is waited for half a minute, and named.
func TestDrainNamesWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := registry(func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			<-release
			return dray.Result{}, nil
		})
		c := begin(t, r, "{}")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		err := r.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), c.ID()) || time.Since(begun) != 40*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := r.Start(t.Context(),
			call.StartRequest{}); dray.CodeOf(err) != dray.CodeShuttingDown {
			t.Errorf("a call began while draining: %v", err)
		}
		close(release)
		<-c.Done()
	})
}

func TestDrainCancelsWithItsCause(t *testing.T) {
	cause := make(chan error, 1)
	r := registry(func(ctx context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return dray.Result{}, nil
	})
	begin(t, r, "{}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Drain(ctx); err != nil {
		t.Error(err)
	}
	if err := <-cause; !errors.Is(err, executor.ErrShutdown) {
		t.Error(err)
	}
	if err := r.Drain(ctx); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// A call's stdin ends with the call, whoever still reads or writes.
func TestStdinEndsWithTheCall(t *testing.T) {
	read := make(chan error, 1)
	r := registry(func(_ context.Context, c dray.Call, _ dray.Sink) (dray.Result, error) {
		go func() { _, err := c.Stdin.Read(make([]byte, 1)); read <- err }()
		return done(t.Context(), c, nil)
	})
	c, err := r.Start(t.Context(), call.StartRequest{
		Invocation: dray.Invocation{Tool: "exec"},
		StdinOpen:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if _, err := c.Stdin().Append(t.Context(), 0, []byte("x"),
		false); dray.CodeOf(err) != dray.CodeConflict {
		t.Error(err)
	}
}

// AU-05: a result that cannot be written fails, and says so.
func TestResultThatIsNoJSON(t *testing.T) {
	r := registry(func(ctx context.Context, c dray.Call, s dray.Sink) (dray.Result, error) {
		res, err := done(ctx, c, s)
		res.Output = json.RawMessage(`{"a":`)
		return res, err
	})
	c := begin(t, r, "{}")
	<-c.Done()
	b, ended := c.Record()
	var rec dray.Record
	if err := json.Unmarshal(b, &rec); err != nil || !ended || rec.Status != dray.StatusFailed ||
		rec.Error.Code != dray.CodeInternal {
		t.Errorf("%v %s", err, b)
	}
}

// A refusal before the begin is no call: it has no events, and nobody finds it.
func TestRefusedCallIsNone(t *testing.T) {
	for _, c := range []struct {
		code     dray.Code
		begun    bool
		accepted bool
	}{
		{dray.CodeAuditUnavailable, false, false},
		{dray.CodeShuttingDown, false, false},
		{dray.CodeAuditUnavailable, true, true},
		{dray.CodeInternal, true, true},
		{dray.CodeContainerNotFound, true, true},
	} {
		t.Run(fmt.Sprint(c.code, c.begun), func(t *testing.T) {
			fails := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				return dray.Result{}, dray.Errorf(c.code, "no")
			})
			run := dray.Executor(fails)
			if c.begun {
				run = call.MarkAccepted(fails)
			}
			r := registry(run.Execute)
			call := begin(t, r, "{}")
			<-call.Done()
			if err := r.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, found := r.Find(call.ID(), "me")
			// the trail may know better than such an answer
			kept := c.accepted && c.code != dray.CodeAuditUnavailable
			if (call.Refused() == nil) != c.accepted || found != kept {
				t.Errorf("refused with %v, found: %v", call.Refused(), found)
			}
			ev, ok, _ := call.Events().Reader(0).Poll()
			if ok != c.accepted || ok && !bytes.Contains(ev.Body, []byte(`"accepted"`)) {
				t.Errorf("its first event: %s", ev.Body)
			}
		})
	}
}
