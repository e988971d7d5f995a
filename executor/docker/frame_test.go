package docker_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// marker is the payload whose frame a frameFault replaces.
const marker = "replaced by the test"

// frameFault is a proxy of the real engine that replaces the frame of marker by other bytes.
type frameFault struct {
	replacement []byte
	wg          sync.WaitGroup
	listener    net.Listener
}

func newFrameFault(t *testing.T) *frameFault {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frameFault{listener: l}
	f.wg.Go(f.accept)
	t.Cleanup(func() { // after the engine's client is closed
		_ = l.Close()
		f.wg.Wait()
	})
	return f
}

func (f *frameFault) accept() {
	for {
		near, err := f.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", "/var/run/docker.sock")
		if err != nil {
			_ = near.Close()
			continue
		}
		f.wg.Go(func() { f.pass(far, near) })
		f.wg.Go(func() { f.pass(near, far) })
	}
}

func (f *frameFault) pass(to, from net.Conn) {
	defer to.Close()
	frame := append([]byte{1, 0, 0, 0, 0, 0, 0, byte(len(marker))}, marker...)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if b := bytes.Replace(buf[:n], frame, f.replacement, 1); len(b) > 0 {
			_, _ = to.Write(b)
		}
		if err != nil {
			return
		}
	}
}

// A frame of the engine's stream with an impossible stream number or length, or one that is cut,
// makes a failure, never output.
func TestEngineFrames_Invalid(t *testing.T) {
	box := runContainer(t, newEngine(t, docker.TransportEngine), busybox, nil)
	frame := func(header [4]byte, length uint32, payload string) []byte {
		return append(binary.BigEndian.AppendUint32(header[:], length), payload...)
	}
	for name, c := range map[string]struct {
		replacement []byte
		ok          bool
	}{
		"valid":        {frame([4]byte{1}, 4, "same"), true},
		"empty":        {append(frame([4]byte{1}, 0, ""), frame([4]byte{1}, 4, "same")...), true},
		"stdin":        {frame([4]byte{0}, 4, "junk"), false},
		"stream 3":     {frame([4]byte{3}, 4, "junk"), false},
		"stream 255":   {frame([4]byte{255}, 4, "junk"), false},
		"no zeros":     {frame([4]byte{1, 0, 7}, 4, "junk"), false},
		"4 GiB":        {frame([4]byte{1}, 1<<32-1, "junk"), false},
		"2 MiB":        {frame([4]byte{1}, 2<<20, "junk"), false},
		"cut":          {frame([4]byte{1}, 400, "same"), false},
		"cut header":   {[]byte{1, 0, 0}, false},
		"no frame":     {[]byte("plain text of an engine"), false},
		"second frame": {append(frame([4]byte{1}, 4, "same"), "plain text"...), false},
	} {
		t.Run(name, func(t *testing.T) {
			fault := newFrameFault(t)
			fault.replacement = c.replacement
			t.Setenv("DOCKER_HOST", "tcp://"+fault.listener.Addr().String())
			env := environment(t, newEngine(t, docker.TransportEngine), box, agent.Spec{})
			p, err := env.Start(t.Context(), dray.ProcessSpec{
				Argv: []string{"sh", "-c", "printf '" + marker + "'; exit 0"}, Dir: "/",
			})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) }()
			out, _ := io.ReadAll(p.Output(dray.Stdout))
			exit, err := p.Wait()
			if failed := err != nil; failed == c.ok || strings.Contains(string(out), "junk") ||
				c.ok && string(out) != "same" {
				t.Errorf("got output %q, %+v, %v", out, exit, err)
			}
		})
	}
}
