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

func registry(t *testing.T, run dray.ExecutorFunc) *call.Registry {
	t.Helper()
	r := call.NewRegistry(call.Options{
		Executor: run, Log: zap.NewNop(),
		Open: func(string, dray.Stream) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist },
	})
	t.Cleanup(func() { _ = r.Drain(t.Context()) })
	return r
}

func startCall(t *testing.T, r *call.Registry, input string) *call.Call {
	t.Helper()
	c, err := r.Start(t.Context(), &call.Prepared{Invocation: dray.Invocation{
		Tool: "exec", Principal: "me", Input: json.RawMessage(input),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func succeed(_ context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
	code := 0
	return dray.Result{Reason: dray.ReasonExited, ExitCode: &code}, nil
}

func TestRegistryRetainsEndedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(t, succeed)
		first := startCall(t, r, "{}")
		<-first.Done()
		synctest.Wait()
		if _, ok := r.Find(first.ID(), "me"); !ok {
			t.Error("an ended call was not found")
		}
		if _, ok := r.Find(first.ID(), "you"); ok {
			t.Error("another principal found the call")
		}
		time.Sleep(5 * time.Minute)
		if _, ok := r.Find(first.ID(), "me"); ok {
			t.Error("the call was found after 5 minutes")
		}
	})
}

// The full record of an ended call is what its response has, also if the output of its tool has a
// name twice, or cannot be encoded (AU-05).
func TestFullRecord(t *testing.T) {
	for output, status := range map[string]dray.Status{
		"null": dray.StatusSucceeded, `{"a":[1],"a":2}`: dray.StatusSucceeded, `{"a":`: dray.StatusFailed,
	} {
		r := registry(t, func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			res, err := succeed(ctx, c, sink)
			res.Output = json.RawMessage(output)
			return res, err
		})
		c := startCall(t, r, `{"b":1}`)
		<-c.Done()
		rec, err := c.FullRecord()
		if err != nil {
			t.Fatal(err)
		}
		encoded, _ := c.Encoded()
		var sent dray.Record
		if err := json.Unmarshal(encoded, &sent); err != nil {
			t.Fatal(err)
		}
		if rec.Status != status || sent.Status != status || (rec.Error == nil) != (sent.Error == nil) ||
			string(rec.Input) != string(sent.Input) || string(rec.Output) != string(sent.Output) {
			t.Errorf("output %q: the record is %+v, and was sent as %s", output, rec, encoded)
		}
	}
}

func TestRegistryBoundsEndedCalls(t *testing.T) {
	for name, c := range map[string]struct {
		input    string
		calls    int
		retained int
	}{
		"by number": {"{}", 300, 256},
		"by size":   {`{"a":"` + strings.Repeat("x", 6<<20) + `"}`, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := registry(t, succeed)
			var ids []string
			for range c.calls {
				started := startCall(t, r, c.input)
				<-started.Done()
				ids = append(ids, started.ID())
			}
			found := 0
			for i, id := range ids {
				if _, ok := r.Find(id, "me"); ok {
					found++
				} else if i >= len(ids)-c.retained {
					t.Errorf("call %d of %d was not found", i+1, len(ids))
				}
			}
			if found != c.retained {
				t.Errorf("%d calls were found, want %d", found, c.retained)
			}
		})
	}
}

// Drain waits 30 seconds for a cancelled call and names one that has not ended (OP-01).
func TestDrainNamesCallThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := registry(t, func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			<-release
			return dray.Result{}, nil
		})
		c := startCall(t, r, "{}")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		err := r.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), c.ID()) || time.Since(start) != 40*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := r.Start(t.Context(),
			&call.Prepared{}); dray.CodeOf(err) != dray.CodeShuttingDown {
			t.Errorf("a call started while the registry drained: %v", err)
		}
		close(release)
		<-c.Done()
	})
}

func TestDrainCancelsWithErrShutdown(t *testing.T) {
	cause := make(chan error, 1)
	r := registry(t, func(ctx context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return dray.Result{}, nil
	})
	startCall(t, r, "{}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Drain(ctx); err != nil {
		t.Error(err)
	}
	if err := <-cause; !errors.Is(err, executor.ErrShutdown) {
		t.Error(err)
	}
	if err := r.Drain(ctx); err != nil {
		t.Errorf("second Drain: %v", err)
	}
}

func TestStdinClosesWithTheCall(t *testing.T) {
	read := make(chan error, 1)
	r := registry(t, func(_ context.Context, c dray.Call, _ dray.Sink) (dray.Result, error) {
		go func() { _, err := c.Stdin.Read(make([]byte, 1)); read <- err }()
		return succeed(t.Context(), c, nil)
	})
	c, err := r.Start(t.Context(), &call.Prepared{
		Invocation: dray.Invocation{Tool: "exec"}, StdinOpen: true,
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

// A call whose output is not JSON fails (AU-05).
func TestInvalidOutput(t *testing.T) {
	r := registry(t, func(ctx context.Context, c dray.Call, s dray.Sink) (dray.Result, error) {
		res, err := succeed(ctx, c, s)
		res.Output = json.RawMessage(`{"a":`)
		return res, err
	})
	c := startCall(t, r, "{}")
	<-c.Done()
	b, ended := c.Encoded()
	var rec dray.Record
	if err := json.Unmarshal(b, &rec); err != nil || !ended || rec.Status != dray.StatusFailed ||
		rec.Error.Code != dray.CodeInternal {
		t.Errorf("%v %s", err, b)
	}
}

// A call that is rejected before its begin record has no events and is not found.
func TestRejectedCall(t *testing.T) {
	for _, c := range []struct {
		code     dray.Code
		recorded bool
		accepted bool
	}{
		{dray.CodeAuditUnavailable, false, false},
		{dray.CodeShuttingDown, false, false},
		{dray.CodeAuditUnavailable, true, true},
		{dray.CodeInternal, true, true},
		{dray.CodeContainerNotFound, true, true},
	} {
		t.Run(fmt.Sprint(c.code, c.recorded), func(t *testing.T) {
			fails := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				return dray.Result{}, dray.Errorf(c.code, "no")
			})
			run := dray.Executor(fails)
			if c.recorded {
				run = call.Recorded(fails)
			}
			r := registry(t, run.Execute)
			started := startCall(t, r, "{}")
			<-started.Done()
			if err := r.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, found := r.Find(started.ID(), "me")
			// the audit log may get the end record later
			retained := c.accepted && c.code != dray.CodeAuditUnavailable
			if (started.Rejected() == nil) != c.accepted || found != retained {
				t.Errorf("rejected with %v, found: %v", started.Rejected(), found)
			}
			ev, ok, _ := started.Events().Reader(0).Poll()
			if ok != c.accepted || ok && !bytes.Contains(ev.Body, []byte(`"accepted"`)) {
				t.Errorf("first event: %s", ev.Body)
			}
		})
	}
}
