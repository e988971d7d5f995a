package call_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

// step is one write and its expected result.
type step struct {
	offset  int64
	text    string
	eof     bool
	written int64
	code    dray.Code
}

// Repeated and overlapping writes neither lose nor repeat bytes (EX-20).
func TestStdinPipeOffsets(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		read  string
	}{
		"at the end": {[]step{
			{call.StdinAppend, "ab", false, 2, ""},
			{call.StdinAppend, "cd", true, 4, ""},
		}, "abcd"},
		"repeat": {[]step{
			{0, "ab", false, 2, ""},
			{0, "ab", false, 2, ""},
			{2, "", true, 2, ""},
		}, "ab"},
		"overlap": {[]step{
			{0, "abc", false, 3, ""},
			{1, "bcde", false, 5, ""},
			{5, "", true, 5, ""},
		}, "abcde"},
		"repeat of the last": {[]step{
			{0, "ab", true, 2, ""},
			{0, "ab", true, 2, ""},
			{call.StdinAppend, "", true, 2, ""},
		}, "ab"},
		"gap": {
			[]step{{1, "b", false, 0, dray.CodeConflict}, {0, "a", true, 1, ""}},
			"a",
		},
		"after the end": {[]step{
			{0, "a", true, 1, ""},
			{1, "b", false, 1, dray.CodeConflict},
			{call.StdinAppend, "b", false, 1, dray.CodeConflict},
		}, "a"},
		"longer repeat at end": {
			[]step{{0, "a", true, 1, ""}, {0, "ab", true, 1, dray.CodeConflict}},
			"a",
		},
		"nothing": {[]step{{call.StdinAppend, "", true, 0, ""}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := call.NewStdinPipe()
			for i, s := range c.steps {
				n, err := p.Append(t.Context(), s.offset, []byte(s.text), s.eof)
				if n != s.written || (err == nil) != (s.code == "") ||
					(err != nil && dray.CodeOf(err) != s.code) {
					t.Errorf("step %d: %d, %v", i, n, err)
				}
			}
			if b, err := io.ReadAll(p); err != nil || string(b) != c.read {
				t.Errorf("read %q, %v", b, err)
			}
		})
	}
}

// A write to a full pipe waits one second and then writes nothing.
func TestStdinPipe_Full(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := call.NewStdinPipe()
		full := bytes.Repeat([]byte("x"), call.StdinCapacity)
		if n, err := p.Append(t.Context(), 0, full, false); n != call.StdinCapacity || err != nil {
			t.Fatal(n, err)
		}
		start := time.Now()
		n, err := p.Append(t.Context(), call.StdinAppend, []byte("y"), true)
		if n != call.StdinCapacity || dray.CodeOf(err) != dray.CodeBusy ||
			time.Since(start) != time.Second {
			t.Errorf("%d %v after %v", n, err, time.Since(start))
		}
		go func() { time.Sleep(500 * time.Millisecond); _, _ = p.Read(make([]byte, 1)) }()
		if n, err := p.Append(t.Context(), call.StdinAppend, []byte("y"),
			true); n != call.StdinCapacity+1 ||
			err != nil {
			t.Errorf("after a read: %d %v", n, err)
		}
		if b, err := io.ReadAll(p); err != nil || len(b) != call.StdinCapacity || b[len(b)-1] != 'y' {
			t.Errorf("read %d bytes, %v", len(b), err)
		}
	})
}

func TestStdinPipe_WriterCancelled(t *testing.T) {
	p := call.NewStdinPipe()
	_, _ = p.Append(t.Context(), 0, make([]byte, call.StdinCapacity), false)
	cause := errors.New("client disconnected")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := p.Append(ctx, call.StdinAppend, []byte("y"), false); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestStdinPipe_Closed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := call.NewStdinPipe()
		read := make(chan error)
		go func() { _, err := p.Read(make([]byte, 1)); read <- err }()
		synctest.Wait()
		_ = p.Close()
		if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the waiting Read returned %v", err)
		}
		if _, err := p.Append(t.Context(), call.StdinAppend, []byte("y"),
			false); dray.CodeOf(err) != dray.CodeConflict {
			t.Error(err)
		}
		if n, err := p.Append(t.Context(), call.StdinAppend, nil, true); n != 0 || err != nil {
			t.Errorf("end of input after Close: %d %v", n, err)
		}
		_ = p.Close()
	})
}

// Concurrent writers that repeat each other do not change what the reader gets.
func TestStdinPipe_ConcurrentRepeats(t *testing.T) {
	data := make([]byte, 2<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	p := call.NewStdinPipe()
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for at := 0; at < len(data); {
				n := min(1+rand.IntN(90<<10), len(data)-at)
				written, err := p.Append(context.Background(), int64(at), data[at:at+n], at+n == len(data))
				if err != nil {
					return // another writer wrote the end
				}
				at = int(min(written, int64(at+n)))
			}
		})
	}
	defer writers.Wait()
	if b, err := io.ReadAll(p); err != nil || !bytes.Equal(b, data) {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}
