package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/wire"
)

// EX-21: a daemon of the first protocol, which knows no socket, is served over stdio.
func TestServeOldDaemon(t *testing.T) {
	in, toAgent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromAgent, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(in, out) }()
	hello, err := wire.Meet(fromAgent)
	if err != nil || hello.MinProtocol != 1 {
		t.Fatalf("got %+v, %v", hello, err)
	}
	body := `{"min_protocol":1,"max_protocol":1,"version":"v0.1","lease_ms":30000,"uid":0}`
	if _, err := toAgent.WriteString("DRAYWIRE" + string([]byte{byte(len(body)), 0, 0, 0, 0, 0, 0, 0, 1, 0}) + body); err != nil {
		t.Fatal(err)
	}
	daemon := wire.NewMux(pipes{fromAgent, toAgent}, wire.Config{MaxMessage: 1 << 20, Silence: 10 * time.Second})
	ran := make(chan error, 1)
	go func() { ran <- daemon.Run() }()
	s, err := daemon.Open([]byte(`{"argv":["L2Jpbi9zaA==","LWM=","ZWNobyBvbGQ="],"dir":"Lw==","probe":{}}`)) // sh -c "echo old"
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(s.Reader(1)); err != nil || string(said) != "old\n" {
		t.Errorf("got %q, %v", said, err)
	}
	var last wire.Reply
	for last.Exited == nil {
		b, err := s.Receive()
		if err != nil || json.Unmarshal(b, &last) != nil || last.Failed != nil {
			t.Fatalf("got %s, %v", b, err)
		}
	}
	daemon.Close()
	if err := <-ran; !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
