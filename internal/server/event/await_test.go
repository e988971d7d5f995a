package event_test

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/server/event"
)

// flood prints far more than memory holds on both streams, and finishes.
func flood(l *event.Log, size int) {
	var streams sync.WaitGroup
	for s := dray.Stdout; s <= dray.Stderr; s++ {
		streams.Go(func() {
			for range size / 2 / (64 << 10) {
				l.Output(s, bytes.Repeat([]byte("x"), 64<<10))
			}
		})
	}
	streams.Wait()
	l.Finish([]byte("{}"))
}

// An awaited reader gets everything, however slowly it reads and although nothing is kept, and memory stays bounded.
func TestAwaitedReaderMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := event.NewLog(nothingKept)
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
			if ev.Name == event.End {
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

// The waiting has an end: when the reader leaves, when the call is being ended, and when the reader stands still.
func TestAwaitingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*event.Log, *event.Reader)
		after time.Duration
	}{
		"reader leaves":       {func(_ *event.Log, r *event.Reader) { r.Close() }, time.Second},
		"released":            {func(l *event.Log, _ *event.Reader) { l.ReleaseReader() }, time.Second},
		"reader stands still": {func(*event.Log, *event.Reader) {}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := event.NewLog(nothingKept)
				r := l.BlockingReader()
				begun := time.Now()
				done := make(chan struct{})
				go func() { defer close(done); flood(l, 12<<20) }()
				time.Sleep(time.Second)
				select {
				case <-done:
					t.Error("nobody waited")
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

// Other readers are never waited for.
func TestOnlyTheAwaitedReaderIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := event.NewLog(nothingKept)
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
