package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nothingKept(dray.Stream) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist }

type file struct {
	*bytes.Reader
	closed *int
}

func (f file) Close() error { *f.closed++; return nil }

// body is what an output event carries.
type body struct {
	Offset int64   `json:"offset"`
	Text   *string `json:"text"`
	Base64 []byte  `json:"base64"`
}

func (b body) bytes() []byte {
	if b.Text != nil {
		return []byte(*b.Text)
	}
	return b.Base64
}

func parse(t *testing.T, ev eventlog.Event) body {
	t.Helper()
	var b body
	if err := json.Unmarshal(ev.Body, &b); err != nil {
		t.Fatalf("%v: %s", err, ev.Body)
	}
	return b
}

// rest reads a log that is over to its end.
func rest(t *testing.T, r *eventlog.Reader) []eventlog.Event {
	t.Helper()
	var all []eventlog.Event
	for {
		ev, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		ev.Body = bytes.Clone(ev.Body)
		all = append(all, ev)
	}
}

// Output is published at once; output without a reader is combined.
func TestOutputIsPublishedAtOnceAndCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r := l.Reader(0)
		defer r.Close()
		begun := time.Now()
		for i := range 5 {
			l.Output(dray.Stdout, []byte{'a' + byte(i)})
			ev, err := r.Next(t.Context())
			if b := parse(t, ev); err != nil || ev.Seq != int64(i+1) ||
				string(b.bytes()) != string(rune('a'+i)) || b.Offset != int64(i) {
				t.Errorf("%v %s", err, ev.Body)
			}
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("it took %v", d)
		}
		for range 1000 {
			l.Output(dray.Stdout, []byte("x"))
		}
		l.Output(dray.Stderr, []byte("!"))
		l.Output(dray.Stdout, []byte("y"))
		for _, want := range []string{strings.Repeat("x", 1000), "!", "y"} {
			if ev, err := r.Next(t.Context()); err != nil || string(parse(t, ev).bytes()) != want {
				t.Errorf("%v %s, not %q", err, ev.Body, want)
			}
		}
	})
}

// A flood is published in larger pieces, each within some milliseconds.
func TestFloodIsCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r := l.Reader(0)
		defer r.Close()
		go func() {
			for range 2000 {
				l.Output(dray.Stdout, []byte("x"))
				time.Sleep(100 * time.Microsecond)
			}
			l.Finish(time.Now(), []byte("{}"))
		}()
		n, total := 0, 0
		for {
			asked := time.Now()
			ev, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ev.Name == eventlog.End {
				break
			}
			if d := time.Since(asked); d > 6*time.Millisecond {
				t.Errorf("a piece was delayed by %v", d)
			}
			n, total = n+1, total+len(parse(t, ev).bytes())
		}
		if total != 2000 || n < 64 || n > 64+2000/10/5+2 {
			t.Errorf("%d bytes in %d events", total, n)
		}
	})
}

// A split character is published as a whole, or in parts if its rest is late.
func TestSplitCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r := l.Reader(0)
		defer r.Close()
		next := func(want string, text bool) {
			t.Helper()
			ev, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if b := parse(t, ev); string(b.bytes()) != want || (b.Text != nil) != text {
				t.Errorf("%s, not %q", ev.Body, want)
			}
		}
		l.Output(dray.Stdout, []byte("a\xe2\x82"))
		next("a", true)
		go func() { time.Sleep(time.Millisecond); l.Output(dray.Stdout, []byte("\xacb")) }()
		next("€b", true)
		l.Output(dray.Stdout, []byte("\xf0\x9f"))
		begun := time.Now()
		next("\xf0\x9f", false)
		if d := time.Since(begun); d == 0 || d > 10*time.Millisecond {
			t.Errorf("half a character was delayed by %v", d)
		}
		l.Output(dray.Stdout, []byte("\xff\xfe"))
		next("\xff\xfe", false)
	})
}

// Every reader gets every byte once, in order, wherever it begins, and the same events as others.
func TestReadersGetTheSameEvents(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var printed [3][]byte
	closed := 0
	l := eventlog.NewLog(func(s dray.Stream) (io.ReadSeekCloser,
		error,
	) {
		return file{bytes.NewReader(printed[s]), &closed}, nil
	})
	follow := l.Reader(0)
	var followed []eventlog.Event
	noise := make([]byte, 128<<10)
	for i := range noise {
		noise[i] = "aé€😀\n\xff\x00"[rng.IntN(14)%13]
	}
	for range 250 {
		s := dray.Stream(1 + rng.IntN(2))
		from := rng.IntN(64 << 10)
		p := noise[from : from+rng.IntN(60<<10)]
		if rng.IntN(2) == 0 {
			p = []byte(strings.ToValidUTF8(string(p), "?"))
		}
		printed[s] = append(printed[s], p...)
		l.Output(s, p)
		for rng.IntN(3) > 0 {
			ev, ok, err := follow.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			ev.Body = bytes.Clone(ev.Body)
			followed = append(followed, ev)
		}
	}
	if len(printed[1])+len(printed[2]) < 5<<20 {
		t.Fatalf("only %d bytes: not enough to leave the memory", len(printed[1])+len(printed[2]))
	}
	l.Finish(time.Now(), []byte(`{"invocation":{}}`))
	followed = append(followed, rest(t, follow)...)
	follow.Close()
	check(t, followed, printed)
	for range 3 {
		after := rng.IntN(len(followed))
		r := l.Reader(int64(after))
		again := rest(t, r)
		r.Close()
		if len(again) != len(followed)-after {
			t.Fatalf("after %d: %d events, not %d", after, len(again), len(followed)-after)
		}
		for i, ev := range again {
			if want := followed[after+i]; ev.Seq != want.Seq || ev.Name != want.Name ||
				!bytes.Equal(ev.Body, want.Body) {
				t.Fatalf("event %d differs", ev.Seq)
			}
		}
	}
	if closed == 0 {
		t.Error("nothing was read from the kept output")
	}
}

func check(t *testing.T, all []eventlog.Event, printed [3][]byte) {
	t.Helper()
	var got [3][]byte
	for i, ev := range all {
		if ev.Seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i+1, ev.Seq)
		}
		if ev.Name == eventlog.End {
			continue
		}
		b := parse(t, ev)
		s := map[string]dray.Stream{eventlog.Stdout: dray.Stdout, eventlog.Stderr: dray.Stderr}[ev.Name]
		if b.Offset != int64(len(got[s])) || len(b.bytes()) == 0 || len(b.bytes()) > 32<<10 ||
			(b.Text != nil) != readable(b.bytes()) {
			t.Fatalf("event %d: %d bytes at %d, not %d", ev.Seq, len(b.bytes()), b.Offset, len(got[s]))
		}
		got[s] = append(got[s], b.bytes()...)
	}
	for s := range got {
		if !bytes.Equal(got[s], printed[s]) {
			t.Errorf("stream %d: %d bytes, not %d", s, len(got[s]), len(printed[s]))
		}
	}
}

// Output that is neither in memory nor captured is skipped; the offsets show the gap.
func TestReader_Gap(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	r := l.Reader(0)
	defer r.Close()
	l.Output(dray.Stdout, bytes.Repeat([]byte("x"), 6<<20))
	l.Finish(time.Now(), []byte("{}"))
	all := rest(t, r)
	first := parse(t, all[0])
	if first.Offset != 2<<20 || all[0].Seq != 65 || all[len(all)-1].Name != eventlog.End {
		t.Errorf("begins at %d with number %d, ends with %s", first.Offset, all[0].Seq,
			all[len(all)-1].Name)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	r := l.Reader(0)
	chunk, long := bytes.Repeat([]byte("x"), 64<<10), strings.Repeat("m", 5000)
	for range 200 {
		l.Output(dray.Stdout, chunk)
	}
	if n := l.Size(); n > 6<<20 {
		t.Errorf("a running call uses %d bytes", n)
	}
	for range 10_000 {
		l.Progress("build", long)
	}
	if n := l.Size(); n > 6<<20 {
		t.Errorf("with progress: %d bytes", n)
	}
	l.Finish(time.Now(), []byte("{}"))
	if n := l.Size(); n < 4<<20 {
		t.Errorf("unread output was released: %d bytes", n)
	}
	r.Close()
	if n := l.Size(); n > 1<<20 {
		t.Errorf("an ended call uses %d bytes", n)
	}
}

func TestOutputDoesNotBlock(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	r := l.Reader(0) // and never reads
	defer r.Close()
	var writers sync.WaitGroup
	for s := dray.Stdout; s <= dray.Stderr; s++ {
		writers.Go(func() {
			for range 2000 {
				l.Output(s, make([]byte, 8<<10))
			}
		})
	}
	writers.Wait()
	l.Finish(time.Now(), []byte("{}"))
	l.Output(dray.Stdout, []byte("late"))
	l.Finish(time.Now(), []byte(`{"again":1}`))
	all := rest(t, r)
	if last := all[len(all)-1]; last.Name != eventlog.End || string(last.Body) != "{}" {
		t.Errorf("%s %s", last.Name, last.Body)
	}
}

func TestNext_ContextEnds(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	r := l.Reader(0)
	defer r.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := r.Next(ctx); !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestBufferedOutput(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	l.Output(dray.Stdout, []byte("a"))
	l.Output(dray.Stderr, []byte("b"))
	l.Output(dray.Stdout, []byte("c"))
	if b, ok := l.BufferedOutput(dray.Stdout); string(b) != "ac" || !ok {
		t.Errorf("%q %v", b, ok)
	}
	l.Output(dray.Stderr, make([]byte, 5<<20))
	if _, ok := l.BufferedOutput(dray.Stderr); ok {
		t.Error("incomplete output is reported as complete")
	}
}

func TestEventEncodings(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.FixedZone("", 3600))
	for _, c := range []struct {
		ev          eventlog.Event
		sse, ndjson string
	}{
		{
			eventlog.Event{Seq: 7, Name: "stdout", At: at, Body: []byte(`{"offset":0,"text":"a"}`)},
			"id: 7\nevent: stdout\ndata: {\"at\":\"2026-03-01T11:00:00.5Z\",\"offset\":0,\"text\":\"a\"}\n\n",
			`{"seq":7,"event":"stdout","at":"2026-03-01T11:00:00.5Z","offset":0,"text":"a"}` + "\n",
		},
		{
			eventlog.Event{Seq: 8, Name: "end", At: at, Body: []byte(`{}`)},
			"id: 8\nevent: end\ndata: {\"at\":\"2026-03-01T11:00:00.5Z\"}\n\n",
			`{"seq":8,"event":"end","at":"2026-03-01T11:00:00.5Z"}` + "\n",
		},
	} {
		if got := string(c.ev.AppendSSE(nil)); got != c.sse {
			t.Errorf("%q", got)
		}
		if got := string(c.ev.AppendNDJSON(nil)); got != c.ndjson {
			t.Errorf("%q", got)
		}
	}
}

// No output can contain a line break of its event.
func TestEventsAreSingleLines(t *testing.T) {
	l := eventlog.NewLog(nothingKept)
	hostile := "a\n\ndata: x\nid: 9\r\nevent: end\u2028\x00\"}{"
	l.Accepted(hostile)
	l.Progress(hostile, hostile+strings.Repeat("€", 1000))
	l.Output(dray.Stdout, []byte(hostile))
	l.Finish(time.Now(), []byte("{}"))
	r := l.Reader(0)
	defer r.Close()
	for _, ev := range rest(t, r) {
		if !json.Valid(ev.Body) || bytes.ContainsAny(ev.Body, "\n\r") ||
			strings.Count(string(ev.AppendSSE(nil)), "\n") != 4 {
			t.Errorf("%s", ev.Body)
		}
		if line := ev.AppendNDJSON(nil); !json.Valid(line) || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("%s", line)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	for _, size := range []int{16, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := eventlog.NewLog(nothingKept)
			p := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				l.Output(dray.Stdout, p)
			}
		})
	}
}

// flood prints far more than memory holds on both streams, and finishes.
func flood(l *eventlog.Log, size int) {
	var streams sync.WaitGroup
	for s := dray.Stdout; s <= dray.Stderr; s++ {
		streams.Go(func() {
			for range size / 2 / (64 << 10) {
				l.Output(s, bytes.Repeat([]byte("x"), 64<<10))
			}
		})
	}
	streams.Wait()
	l.Finish(time.Now(), []byte("{}"))
}

// A slow blocking reader gets all output, without captures and with bounded memory.
func TestBlockingReader_Slow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r := l.BlockingReader()
		defer r.Close()
		go flood(l, 12<<20)
		total := 0
		for i := 0; ; i++ {
			if i%16 == 0 {
				time.Sleep(time.Second)
			}
			ev, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ev.Name == eventlog.End {
				break
			}
			total += len(parse(t, ev).bytes())
			if n := l.Size(); n > 6<<20 {
				t.Fatalf("%d bytes are held", n)
			}
		}
		if total != 12<<20 {
			t.Errorf("%d bytes arrived", total)
		}
	})
}

// A blocking reader is released when it is closed, when the call is cancelled and when it stalls.
func TestBlockingReader_Released(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*eventlog.Log, *eventlog.Reader)
		after time.Duration
	}{
		"closed":    {func(_ *eventlog.Log, r *eventlog.Reader) { r.Close() }, time.Second},
		"cancelled": {func(l *eventlog.Log, _ *eventlog.Reader) { l.ReleaseReader() }, time.Second},
		"stalled":   {func(*eventlog.Log, *eventlog.Reader) {}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := eventlog.NewLog(nothingKept)
				r := l.BlockingReader()
				begun := time.Now()
				done := make(chan struct{})
				go func() { defer close(done); flood(l, 12<<20) }()
				time.Sleep(time.Second)
				select {
				case <-done:
					t.Error("output did not block")
				default:
				}
				c.end(l, r)
				<-done
				if took := time.Since(begun); took != c.after {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Only the blocking reader blocks output.
func TestBlockingReader_OtherReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r, other := l.BlockingReader(), l.Reader(0)
		defer r.Close()
		defer other.Close()
		begun := time.Now()
		go flood(l, 12<<20)
		rest(t, r)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
