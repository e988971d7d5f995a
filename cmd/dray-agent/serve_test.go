package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// EX-21: a daemon of another time is not served. Both sides' protocols are named, and what to do.
func TestServeOtherProtocol(t *testing.T) {
	body := "\x0e\x12\x02v9 and whatever it means by that"
	hello := append([]byte("DRAYWIRE"), byte(len(body)), 0, 0, 0, 0, 0, 0, 0, 1, 0)
	err := serve(io.NopCloser(bytes.NewReader(append(hello, body...))), discard{})
	if err == nil || !strings.Contains(err.Error(), `(version "v9") speaks protocols 7 to 9, this side 3 to 3`) || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v", err)
	}
	if err := serve(io.NopCloser(strings.NewReader("")), discard{}); err == nil {
		t.Error("nobody is no daemon")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
