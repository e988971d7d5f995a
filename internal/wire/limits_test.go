package wire_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/wire"
)

// A peer that sends but does not read ends the connection after a lease, and blocked writers
// return.
func TestStalledPeerEndsTheConnection(t *testing.T) {
	a, b := socketPair(t)
	m := wire.NewMux(a, wire.Config{MaxMessage: 1 << 10, Lease: 200 * time.Millisecond})
	ended := make(chan error, 1)
	go func() { ended <- m.Run() }()
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := b.Write(frame(0, 0, 2, 0, nil)); err != nil {
				return
			}
		}
	}()
	s, err := m.Open(words("hello"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // more than the socket holds, on channels that the peer never grants again
		err = s.Send(words(string(make([]byte, 60<<10))))
	}
	if got := <-ended; !errors.Is(got, wire.ErrWriteTimeout) {
		t.Errorf("got %v", got)
	}
	_ = b.Close()
	<-pinging
}

// A stream too many, or a message that is too large, fails without harm to other streams.
func TestOpenIsBounded(t *testing.T) {
	m := pair(t, func(s *wire.Stream) { _, _ = s.Receive(); _, _ = s.Receive() })
	if _, err := m.Open(words(string(make([]byte, wire.MaxMessage)))); !errors.Is(err,
		wire.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	open := make([]*wire.Stream, wire.MaxStreams)
	for i := range open {
		s, err := m.Open(words(""))
		if err != nil {
			t.Fatal(err)
		}
		open[i] = s
	}
	if _, err := m.Open(words("")); !errors.Is(err, wire.ErrTooMany) {
		t.Errorf("got %v", err)
	}
	open[7].Close()
	s, err := m.Open(words(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(words("end")); err != nil {
		t.Error(err)
	}
	if _, err := s.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}
