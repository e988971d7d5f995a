package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
)

// A session belongs to a principal, an environment and a runtime. The same name elsewhere is
// another session, and that of another principal is not found (PY-17).
func TestSessions_Keys(t *testing.T) {
	other := &fakeRuntime{name: RuntimePyodide, startGate: make(chan struct{})}
	close(other.startGate)
	t.Cleanup(other.wg.Wait)
	s := newSessions(t, &fakeRuntime{}, func(o *Options) {
		o.Runtimes = append(o.Runtimes, other)
		o.Resident[RuntimePyodide] = 1
	})
	keys := []Key{
		keyOf("a"),
		{Principal: "bob", Environment: "c1", Runtime: RuntimeContainer, Name: "a"},
		{Principal: "alice", Environment: "c1", Runtime: RuntimePyodide, Name: "a"},
	}
	for _, key := range keys {
		if _, err := s.Status(key); dray.CodeOf(err) != dray.CodeNotFound {
			t.Fatalf("%+v: %v", key, err)
		}
		if _, err := s.Reset(t.Context(), key); dray.CodeOf(err) != dray.CodeNotFound {
			t.Fatalf("%+v: %v", key, err)
		}
		if _, err := s.Interrupt(key); dray.CodeOf(err) != dray.CodeNotFound {
			t.Fatalf("%+v: %v", key, err)
		}
		run, err := s.Start(t.Context(), key, nil, CallSpec{})
		if err != nil {
			t.Fatal(err)
		}
		run.Release()
		if info := run.Session(); info.Generation != 1 || info.Key != key {
			t.Fatalf("%+v", info)
		}
	}
	if n := len(s.List("alice", "c1")); n != 2 {
		t.Fatalf("alice has %d sessions", n)
	}
	if n := len(s.List("alice", "c2")); n != 0 {
		t.Fatalf("alice has %d sessions elsewhere", n)
	}
	_, err := s.Start(t.Context(), Key{Runtime: "wasi", Name: "a"}, nil, CallSpec{})
	if dray.CodeOf(err) != dray.CodeInvalidInput {
		t.Fatal(err)
	}
}

// The permissions of a session are those of its first call, until it is reset (PY-19).
func TestSessions_PermissionsAreFixed(t *testing.T) {
	f := &fakeRuntime{capabilities: Capabilities{Permissions: true}}
	most := Permissions{FS: FSWrite, Network: []string{"a", "b"}, Env: []string{"LANG"}}
	s := newSessions(t, f, func(o *Options) { o.Permissions = most })
	start := func(p *Permissions) error {
		run, err := s.Start(t.Context(), keyOf("a"), nil, CallSpec{Permissions: p})
		run.Release()
		return err
	}
	is := func(worker int, want Permissions) {
		t.Helper()
		got := f.worker(worker).spec.Permissions
		if st, err := s.Status(keyOf("a")); err != nil || !reflect.DeepEqual(*got, want) ||
			!reflect.DeepEqual(*st.Permissions, want) {
			t.Fatalf("worker %+v, status %+v, %v; want %+v", got, st.Permissions, err, want)
		}
	}
	first := &Permissions{FS: FSRead, Network: []string{"b", "a"}}
	for _, p := range []*Permissions{
		first, {FS: FSRead, Network: []string{"a", "b"}}, {Env: []string{"LANG"}}, nil,
	} {
		if err := start(p); err != nil {
			t.Fatal(err)
		}
	}
	fixed := Permissions{FS: FSRead, Network: []string{"b", "a"}, Env: []string{"LANG"}}
	is(0, fixed)
	for _, p := range []*Permissions{{FS: FSWrite}, {FS: FSNone}, {Network: []string{"a"}}, {Env: []string{}}} {
		if err := start(p); dray.CodeOf(err) != dray.CodeConflict {
			t.Fatalf("%+v: %v", p, err)
		}
	}
	f.worker(0).Kill() // the next worker has the same permissions
	if err := start(nil); err != nil {
		t.Fatal(err)
	}
	is(1, fixed)
	if _, err := s.Reset(t.Context(), keyOf("a")); err != nil {
		t.Fatal(err)
	}
	if err := start(nil); err != nil {
		t.Fatal(err)
	}
	is(2, most)
}

// A call that asks for more than the configuration permits is denied, and creates no session
// (PY-19).
func TestSessions_PermissionsHaveACeiling(t *testing.T) {
	for _, tt := range []struct {
		most, asked Permissions
		key         string // of what is refused, "" for nothing
	}{
		{Permissions{}, Permissions{}, ""},
		{Permissions{}, Permissions{FS: FSNone, Network: []string{}, Env: []string{}}, ""},
		{Permissions{}, Permissions{FS: FSRead}, "fs"},
		{Permissions{FS: FSRead}, Permissions{FS: FSWrite}, "fs"},
		{Permissions{FS: FSWrite}, Permissions{FS: FSRead}, ""},
		{Permissions{}, Permissions{Network: []string{"a.example"}}, "network"},
		{Permissions{Network: []string{"a.example"}}, Permissions{Network: []string{"A.example."}}, ""},
		{Permissions{Network: []string{"a.example"}}, Permissions{Network: []string{"a.example:443"}}, ""},
		{Permissions{Network: []string{"a.example:443"}}, Permissions{Network: []string{"a.example"}}, "network"},
		{Permissions{Network: []string{"a.example"}}, Permissions{Network: []string{"a.example:22"}}, "network"},
		{Permissions{Network: []string{"a.example"}}, Permissions{Network: []string{"b.a.example"}}, "network"},
		{Permissions{Network: []string{"*.a.example"}}, Permissions{Network: []string{"b.a.example"}}, ""},
		{Permissions{Network: []string{"*.a.example"}}, Permissions{Network: []string{"*.b.a.example"}}, ""},
		{Permissions{Network: []string{"*.a.example"}}, Permissions{Network: []string{"a.example"}}, "network"},
		{Permissions{Network: []string{"*.a.example"}}, Permissions{Network: []string{"*.example"}}, "network"},
		{Permissions{Network: []string{"*.a.example"}}, Permissions{Network: []string{"ba.example"}}, "network"},
		{Permissions{Env: []string{"A"}}, Permissions{Env: []string{"A"}}, ""},
		{Permissions{Env: []string{"A"}}, Permissions{Env: []string{"A", "B"}}, "env"},
	} {
		f := &fakeRuntime{capabilities: Capabilities{Permissions: true}}
		s := newSessions(t, f, func(o *Options) { o.Permissions = tt.most })
		run, err := s.Start(t.Context(), keyOf("a"), nil, CallSpec{Permissions: &tt.asked})
		run.Release()
		switch e := dray.AsError(err); {
		case tt.key == "" && err != nil:
			t.Errorf("%v of %v: %v", tt.asked, tt.most, err)
		case tt.key != "" && (e == nil || e.Code != dray.CodeDenied ||
			!strings.Contains(e.Message, "python.permissions."+tt.key) ||
			!strings.Contains(e.Hint, "python.permissions."+tt.key)):
			t.Errorf("%v of %v: %v", tt.asked, tt.most, err)
		case tt.key != "" && len(s.List("", "")) > 0:
			t.Errorf("%v of %v: a session was created", tt.asked, tt.most)
		}
	}
}

// What is not a host is refused (PY-19).
func TestParseHost(t *testing.T) {
	for text, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "a.example", "*.Example": "*.example",
		"a:8443": "a:8443", "192.0.2.1": "192.0.2.1", "_x.example": "_x.example",
	} {
		if h, err := ParseHost(text); err != nil || h.String() != want {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
	for _, text := range []string{
		"", "*", "*.", ".", "a..b", "a b", "http://a", "a/", "a:", "a:0", "a:65536", "a:b", "u@a", "*a",
		"a.*", "[::1]", "::1", "-a", "a\n", "ä.example", strings.Repeat("a", 254),
	} {
		if h, err := ParseHost(text); dray.CodeOf(err) != dray.CodeInvalidInput {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
}

// A call whose context ends while it waits, or while its worker starts, gives everything back.
func TestSessions_CancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{startGate: make(chan struct{}), execute: untilStopped}
		s := newSessions(t, f, func(o *Options) { o.Resident[RuntimeContainer] = 1 })
		begin := func(name string) (cancel context.CancelCauseFunc, result <-chan error) {
			ctx, stop := context.WithCancelCause(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := s.Start(ctx, keyOf(name), nil, CallSpec{})
				failed <- err
			}()
			synctest.Wait()
			return stop, failed
		}
		cancelStart, starting := begin("a")
		cancelTurn, turn := begin("a")
		cancelSlot, slot := begin("b")
		if got := states(s); got != "a=starting b=cold" {
			t.Fatal(got)
		}
		for cancel, result := range map[*context.CancelCauseFunc]<-chan error{
			&cancelTurn: turn, &cancelSlot: slot, &cancelStart: starting,
		} {
			(*cancel)(errGivenUp)
			if err := <-result; !errors.Is(err, errGivenUp) {
				t.Fatal(err)
			}
		}
		close(f.startGate)
		f.behave(answer)
		call(t, s, "c")
	})
}

// A failed start leaves a free slot, and its error is the runtime's.
func TestSessions_StartFails(t *testing.T) {
	f := &fakeRuntime{startErr: dray.Errorf(dray.CodeHelperMissing, "no python3")}
	s := newSessions(t, f)
	for range 5 {
		if _, err := s.Start(t.Context(), keyOf("a"), nil, CallSpec{}); dray.CodeOf(err) != dray.CodeHelperMissing {
			t.Fatal(err)
		}
	}
	if p := s.pools[RuntimeContainer]; p.used != 0 {
		t.Fatalf("%d slots are used", p.used)
	}
}

// Close ends what runs, starts and waits, and waits for it.
func TestSessions_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: ignoreInterrupts}
		s := newSessions(t, f, func(o *Options) { o.Resident[RuntimeContainer] = 1 })
		run := start(t, s, "a")
		failed := make(chan error, 2)
		for _, name := range []string{"a", "b"} {
			go func() {
				_, err := s.Start(t.Context(), keyOf(name), nil, CallSpec{})
				failed <- err
			}()
		}
		synctest.Wait()
		s.Close()
		if _, err := run.Wait(); dray.CodeOf(err) != dray.CodeShuttingDown {
			t.Fatalf("the call that ran: %v", err)
		}
		run.Release()
		failed2 := []error{<-failed, <-failed}
		_, err := s.Start(t.Context(), keyOf("c"), nil, CallSpec{})
		for _, err := range append(failed2, err) {
			if dray.CodeOf(err) != dray.CodeShuttingDown {
				t.Fatal(err)
			}
		}
		if n := f.alive.Load(); n != 0 {
			t.Fatalf("%d workers are left", n)
		}
	})
}

// A runtime without workers is refused.
func TestNew_NoWorkers(t *testing.T) {
	_, err := New(Options{Runtimes: []Runtime{&fakeRuntime{}}})
	if dray.CodeOf(err) != dray.CodeInvalidRequest || dray.AsError(err).Hint == "" {
		t.Errorf("%v", err)
	}
}

// A session is held exclusively between calls: not while one runs, and none starts (PY-25).
func TestSessions_Exclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: untilStopped, capabilities: Capabilities{InterruptKeepsState: true}}
		s := newSessions(t, f)
		run := start(t, s, "a")
		f.behave(answer)
		order := make(chan string, 3)
		go func() {
			err := s.Exclusive(t.Context(), keyOf("a"), nil, CallSpec{}, func(_ context.Context, x *Exclusive) error {
				if st := x.Status(); st.State != Busy || !st.HasState || st.Generation != 1 || st.Waiting != 1 {
					t.Errorf("%+v", st)
				}
				order <- "exclusive"
				return errGivenUp
			})
			if !errors.Is(err, errGivenUp) {
				t.Error(err)
			}
		}()
		synctest.Wait()
		go func() {
			call(t, s, "a")
			order <- "next call"
		}()
		synctest.Wait()
		order <- "first call"
		run.Stop(time.Second)
		run.Release()
		if a, b, c := <-order, <-order, <-order; a != "first call" || b != "exclusive" || c != "next call" {
			t.Fatal(a, b, c)
		}
	})
}

// Reset ends what has a session exclusively, at once (PY-25).
func TestSessions_ResetEndsExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(t, &fakeRuntime{})
		call(t, s, "a")
		failed := make(chan error)
		go func() {
			failed <- s.Exclusive(t.Context(), keyOf("a"), nil, CallSpec{}, func(ctx context.Context, _ *Exclusive) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		if discarded, err := s.Reset(t.Context(), keyOf("a")); err != nil || !discarded {
			t.Fatal(discarded, err)
		}
		if err := <-failed; dray.CodeOf(err) != dray.CodeConflict {
			t.Fatal(err)
		}
	})
}

// The loss of state by a restart of the daemon is reported, once, and not for a session without
// state (PY-25).
func TestSessions_DaemonRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sessions")
	open := func() *Sessions {
		f := &fakeRuntime{}
		t.Cleanup(f.wg.Wait)
		return newSessions(t, f, func(o *Options) { o.StateFile = file })
	}
	s := open()
	call(t, s, "a")
	call(t, s, "b")
	call(t, s, "c") // evicts a
	if discarded, err := s.Reset(t.Context(), keyOf("b")); err != nil || !discarded {
		t.Fatal(discarded, err)
	}
	err := s.Exclusive(t.Context(), keyOf("d"), nil, CallSpec{}, func(ctx context.Context, x *Exclusive) error {
		_, err := x.Worker(ctx) // without user code
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open()
	for name, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false} {
		got := call(t, s, name)
		if got.DiscardedState != want || want && got.Generation != 2 {
			t.Errorf("%s: %+v", name, got)
		}
		if call(t, s, name).DiscardedState {
			t.Errorf("%s: reported twice", name)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}

// A damaged or unwritable file is logged, and nothing else fails (PY-25).
func TestJournal_Damaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sessions")
	good := `{"principal":"alice","environment":"c1","runtime":"container","name":"a","generation":4,"state":true}`
	content := good + "\n" + "\x00\xff\n{}\n" + good[:40]
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	f := &fakeRuntime{}
	s := newSessions(t, f, func(o *Options) { o.StateFile, o.Log = file, zap.New(core) })
	if got := call(t, s, "a"); !got.DiscardedState || got.Generation != 5 {
		t.Fatalf("%+v", got)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["lines"] != int64(3) {
		t.Fatalf("%+v", logs.All())
	}
	s2 := newSessions(t, &fakeRuntime{}, func(o *Options) {
		o.StateFile, o.Log = filepath.Join(file, "no directory"), zap.New(core)
	})
	call(t, s2, "a")
	if logs.Len() < 2 {
		t.Fatal("a file that cannot be written was not logged")
	}
}

// The journal stays small however often sessions lose their state, and a line is a session.
func TestJournal_IsRewritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sessions")
	j, _ := openJournal(file, zap.NewNop())
	for i := range uint32(10 * maxObsolete) {
		j.record(keyOf("a"), i+1, true)
		j.record(keyOf("b"), i+1, i%2 == 0)
	}
	j.close()
	data, err := os.ReadFile(file)
	if n := strings.Count(string(data), "\n"); err != nil || n > 2*maxObsolete {
		t.Fatalf("%d lines, %v", n, err)
	}
	j, entries := openJournal(file, zap.NewNop())
	defer j.close()
	if len(entries) != 1 || entries[0].Key != keyOf("a") || entries[0].Generation != 10*maxObsolete {
		t.Fatalf("%+v", entries)
	}
	left, err := filepath.Glob(file + "*")
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
}

// The number of sessions that are remembered is bounded, and those with workers are kept.
func TestSessions_AreForgotten(t *testing.T) {
	s := newSessions(t, &fakeRuntime{})
	call(t, s, "kept")
	s.mu.Lock()
	for i := range maxSessions + 5 {
		key := keyOf(fmt.Sprint("x", i))
		sess, err := s.sessionOf(key)
		if err != nil {
			t.Fatal(err)
		}
		sess.lastUsed = time.Now()
	}
	n, kept := len(s.sessions), s.sessions[keyOf("kept")] != nil
	s.mu.Unlock()
	if n > maxSessions || !kept {
		t.Fatalf("%d sessions, kept %t", n, kept)
	}
}
