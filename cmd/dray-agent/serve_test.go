package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A daemon with other protocols is not served. The error names both sides' protocols and what to do
// (EX-21).
func TestServe_IncompatibleDaemon(t *testing.T) {
	body := "\x10\x12\x02v9 and its own further fields...."
	hello := append([]byte("DRAYWIRE"), byte(len(body)), 0, 0, 0, 0, 0, 0, 0, 1, 0)
	err := serve(io.NopCloser(bytes.NewReader(append(hello, body...))), discard{})
	if err == nil || !strings.Contains(err.Error(), `(version "v9") speaks protocols 8 to 9, this side 7 to 7`) || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v", err)
	}
	if err := serve(io.NopCloser(strings.NewReader("")), discard{}); err == nil {
		t.Error("serve succeeds without a daemon")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
