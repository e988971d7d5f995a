package eventlog_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

// A reader misses no event while the oldest ones are removed, also if the newest ends within a
// character.
func TestReader_BeyondMaxEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventlog.NewLog(nothingKept)
		r := l.Reader(0)
		defer r.Close()
		const before = 8187 // of 8192 that are remembered
		for range before {
			l.Progress("build", "")
			if _, ok, err := r.Poll(); !ok {
				t.Fatal(err)
			}
		}
		var got []byte
		for i := range 20 {
			l.Output(dray.Stdout, []byte("a\xc3"))
			for j := range 2 { // the letter at once, half a character after a while
				ev, err := r.Next(t.Context())
				if err != nil || ev.Seq != int64(before+2*i+j+1) {
					t.Fatalf("event %d: %v", ev.Seq, err)
				}
				got = append(got, parse(t, ev).bytes()...)
			}
		}
		if len(got) != 40 || string(got[38:]) != "a\xc3" {
			t.Errorf("%q", got)
		}
	})
}

// Output that is added to an open entry does not wake a reader.
func BenchmarkFloodWithReader(b *testing.B) {
	l := eventlog.NewLog(nothingKept)
	r := l.Reader(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if ev, err := r.Next(b.Context()); err != nil || ev.Name == eventlog.End {
				return
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		l.Output(dray.Stdout, []byte("one short line\n"))
	}
	l.Finish(time.Now(), []byte("{}"))
	<-done
	r.Close()
}

// readable says what goes as text: UTF-8, unless it is long and so full of control characters that
// their escapes would swell it.
func readable(p []byte) bool {
	control := 0
	for _, c := range p {
		if c < 0x20 && !bytes.ContainsRune([]byte("\n\t\r"), rune(c)) {
			control++
		}
	}
	return utf8.Valid(p) && (len(p) < 4<<10 || control <= len(p)/10)
}

// A reader after a flood still gets the state events, which are not captured.
func TestReader_LateGetsStates(t *testing.T) {
	for name, flood := range map[string]func(l *eventlog.Log){
		"many bytes": func(l *eventlog.Log) { l.Output(dray.Stdout, bytes.Repeat([]byte("x"), 6<<20)) },
		"many events": func(l *eventlog.Log) {
			for i := range 10_000 {
				l.Output(dray.Stream(1+i%2), []byte("x"))
			}
		},
	} {
		l := eventlog.NewLog(nothingKept)
		l.Accepted("some-id")
		l.Queued(true)
		l.Queued(false)
		l.Started()
		flood(l)
		late := l.Reader(1) // it has the first
		l.Finish(time.Now(), []byte("{}"))
		all := rest(t, late)
		late.Close()
		for i, want := range []string{"waiting", "turn", "started"} {
			if ev := all[i]; ev.Seq != int64(i+2) || ev.Name != eventlog.State ||
				!bytes.Contains(ev.Body, []byte(want)) {
				t.Errorf("%s: event %d is %d %s %.100s", name, i, ev.Seq, ev.Name, ev.Body)
			}
		}
		if last := all[len(all)-1]; last.Name != eventlog.End || all[3].Name == eventlog.State {
			t.Errorf("%s: next event %s, last event %s", name, all[3].Name, last.Name)
		}
	}
}
