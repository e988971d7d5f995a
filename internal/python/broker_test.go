package python

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// newTestBroker returns a broker whose answers are sent to a channel.
func newTestBroker(t *testing.T, call ToolCaller) (*broker, <-chan string) {
	answers := make(chan string, 1)
	e := &execution{}
	b := newBroker(e, Request{Services: Services{CallTool: call}}, nil, nil)
	b.answer = func(body []byte) { answers <- string(body) }
	t.Cleanup(b.close)
	return b, answers
}

func callBody(id, interrupts int) []byte {
	return fmt.Appendf(nil, `{"id":%d,"interrupts":%d,"call_tool":{"name":"a","input":{}}}`, id,
		interrupts)
}

// A run that calls without end is refused after 10,000 calls (PY-27).
func TestBroker_CallsAreBounded(t *testing.T) {
	calls := 0
	b, answers := newTestBroker(t, func(context.Context, string, json.RawMessage, Permissions,
	) (json.RawMessage, error) {
		calls++
		return json.RawMessage("1"), nil
	})
	for i := 1; i <= maxBrokered+1; i++ {
		if err := b.receive(callBody(i, 0)); err != nil {
			t.Fatal(err)
		}
		got := <-answers
		if refused := strings.Contains(got, `"EAGAIN"`); refused != (i > maxBrokered) {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	if calls != maxBrokered {
		t.Errorf("%d calls", calls)
	}
}

// A call that comes before the answer to the last one, or with another number, is a violation; an
// interrupt that crosses a call ends it, and the next one waits for the work of it (PY-08, PY-27).
func TestBroker_OneCallAtATime(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	b, answers := newTestBroker(t, func(context.Context, string, json.RawMessage, Permissions,
	) (json.RawMessage, error) {
		began <- struct{}{}
		<-release
		return json.RawMessage("1"), nil
	})
	violates := func(body []byte) {
		t.Helper()
		if err := b.receive(body); dray.CodeOf(err) != dray.CodeAgentLost {
			t.Errorf("%s: %v", body, err)
		}
	}
	violates(callBody(2, 0))
	violates(callBody(0, 0))
	b.interrupt(func() {})
	if err := b.receive(callBody(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; !strings.Contains(got, `"ECANCELED"`) {
		t.Fatalf("the interrupt was lost: %s", got)
	}
	if err := b.receive(callBody(2, 1)); err != nil {
		t.Fatal(err)
	}
	<-began
	violates(callBody(3, 1))
	b.interrupt(func() {})
	if got := <-answers; !strings.Contains(got, `"ECANCELED"`) {
		t.Fatal(got)
	}
	if err := b.receive(callBody(3, 2)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
		t.Error("two calls work at a time")
	default:
	}
	release <- struct{}{}
	<-began
	release <- struct{}{}
	if got := <-answers; got != `{"id":3,"output":1}` {
		t.Error(got)
	}
}

// The addresses that code may connect to are those of the public internet (PY-27).
func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "8.8.8.8": true, "2606:4700::1111": true, "2a00:1450::1": true,
		"127.0.0.1": false, "127.255.255.254": false, "0.0.0.0": false, "0.1.2.3": false,
		"10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "172.32.0.1": true,
		"192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "100.127.255.255": false,
		"100.128.0.1": true, "192.0.0.1": false, "192.0.2.1": false, "198.18.0.1": false,
		"198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "240.0.0.1": false,
		"255.255.255.255": false, "::": false, "::1": false, "::127.0.0.1": false,
		"::ffff:127.0.0.1": false, "::ffff:8.8.8.8": false, "64:ff9b::7f00:1": false,
		"64:ff9b::808:808": false, "64:ff9b:1::1": false, "fc00::1": false, "fd12:3456::1": false,
		"fe80::1": false, "fe80::1%lo": false, "2606:4700::1%lo": false, "fec0::1": false,
		"ff02::1": false, "100::1": false, "2001::1": false, "2001:db8::1": false,
		"2002:7f00:1::": false, "5f00::1": false, "3fff::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %t", text, got)
		}
	}
}

// Paths of read_text_file are beneath the working directory (PY-11).
func TestBroker_Beneath(t *testing.T) {
	for _, tt := range []struct{ cwd, name, want string }{
		{"/w", "a", "a"},
		{"/w", "/w/a", "a"},
		{"/w", "/w", "."},
		{"/w", "/w/", "."},
		{"/w", "", "."},
		{"/w", "b/../a", "a"},
		{"/", "/a", "a"},
		{"/", "a", "a"},
		{"/", "/", "."},
		{"/w", "/w//a", "a"},
		{"/w", "..", "!"},
		{"/w", "../w/a", "!"},
		{"/w", "/", "!"},
		{"/w", "/wa", "!"},
		{"/w", "/a", "!"},
		{"/w", "/w/../a", "!"},
		{"/w", "a\x00b", "!"},
		{"/w", "a/../../b", "!"},
	} {
		b := &broker{cwd: tt.cwd}
		got, err := b.beneath(tt.name)
		if err != nil {
			got = "!"
		}
		if got != tt.want {
			t.Errorf("%q in %s: %q, want %q", tt.name, tt.cwd, got, tt.want)
		}
	}
}
