package wire_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/wire"
)

// trapped is a connection that panics when it is read from, or written to.
type trapped struct {
	net.Conn
	reading, writing bool
}

func (c trapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.reading {
		panic("planted in the reading")
	}
	return n, err
}

func (c trapped) Write(p []byte) (int, error) {
	if c.writing {
		panic("planted in the writing")
	}
	return c.Conn.Write(p)
}

// EX-18: a defect in the work for a connection ends the connection and every stream on it with an error that says so, and nothing else.
func TestPanicEndsTheConnection(t *testing.T) {
	for name, trap := range map[string]trapped{"planted in the reading": {reading: true}, "planted in the writing": {writing: true}} {
		t.Run(name, func(t *testing.T) {
			a, b := socketPair(t)
			trap.Conn = a
			m := wire.NewMux(trap, wire.Config{MaxMessage: 1 << 10, Lease: 200 * time.Millisecond}) // it pings six times as often
			var s *wire.Stream
			if trap.reading {
				var err error
				if s, err = m.Open(words("")); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Write(frame(0, 0, 6, 0, nil)); err != nil { // whatever it is
					t.Fatal(err)
				}
			}
			err := m.Run()
			defect, ok := errors.AsType[*wire.PanicError](err)
			if !ok || !strings.Contains(err.Error(), name) || !strings.Contains(string(defect.Stack), "panic_test.go") {
				t.Errorf("the connection ended with %v", err)
			}
			if s != nil {
				if _, err := s.Receive(); !errors.Is(err, defect) {
					t.Errorf("the stream ended with %v", err)
				}
			}
		})
	}
}
