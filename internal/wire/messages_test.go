package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/wire"
)

// messages has each type with all fields set, and with none.
func messages() []wire.Message {
	size := &dray.TerminalSize{Columns: 80, Rows: 24}
	return []wire.Message{
		&wire.Start{
			Argv: []string{"sh", "", "\xff\x00"}, Helper: []string{
				"files",
				"/",
			}, User: "vscode", Groups: []string{"7"}, Dir: "/work", RealDir: "/w", Env: []string{"A=1"},
			Probe: wire.Probe{
				Kind: "loginShell", Shell: "/bin/sh",
				Dir: "/",
			}, CallEnv: []string{"B=2"}, RemoteEnv: []string{"C=3"},
			Grace: 2 * time.Second, KeepLeftovers: true, Terminal: size, PassedFDs: true,
			Call: "id", RemoveResults: "/dev/shm/x/1",
		},
		&wire.Request{Go: true, Signal: 15, Stop: &wire.Stop{Grace: time.Second}, Resize: size},
		&wire.Reply{
			Ready: true,
			Started: &wire.Started{
				PID:      1 << 22,
				Warnings: []string{"w"},
			}, Failed: &wire.Failed{Code: dray.CodeBadCwd, Message: "m"},
			Exited: &wire.Exited{
				Code: 255, Signal: 9, Leftover: 3, Lost: true, Proven: true, Survivors: []int{
					1,
					2,
				}, Kept: []int{3}, OOM: dray.OOMCertain, Results: "/dev/shm/x/1",
				SessionState: []byte("s\x00"),
			},
		},
		&wire.Start{}, &wire.Request{}, &wire.Reply{},
	}
}

func fresh(message wire.Message) wire.Message {
	made, _ := reflect.TypeAssert[wire.Message](reflect.New(reflect.TypeOf(message).Elem()))
	return made
}

// Messages are decoded as they were. A message that is cut or has further bytes is an ErrProtocol.
func TestMessagesRoundTrip(t *testing.T) {
	for i, message := range messages() {
		if i < 3 {
			everyFieldIsSet(t, reflect.ValueOf(message).Elem())
		}
		came := wire.Encode(message)
		got := fresh(message)
		if err := wire.Decode(came, got); err != nil || !reflect.DeepEqual(got, message) {
			t.Errorf("got %+v, %v, want %+v", got, err, message)
		}
		for n := range came {
			if err := wire.Decode(came[:n], fresh(message)); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("%T cut after %d of %d bytes: %v", message, n, len(came), err)
			}
		}
		if err := wire.Decode(append(bytes.Clone(came), 0), fresh(message)); !errors.Is(err,
			wire.ErrProtocol) {
			t.Errorf("%T and a byte: %v", message, err)
		}
	}
}

// everyFieldIsSet makes TestMessagesRoundTrip fail for a new field that it does not set.
func everyFieldIsSet(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Field(i)
		if field.IsZero() {
			t.Errorf("the example of %s does not set %s", v.Type(), v.Type().Field(i).Name)
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if field.Kind() == reflect.Struct {
			everyFieldIsSet(t, field)
		}
	}
}

// FuzzMessages checks that bytes are a message or an ErrProtocol, and that a message is the same
// after encoding and decoding it.
func FuzzMessages(f *testing.F) {
	for _, m := range messages() {
		f.Add(wire.Encode(m))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, kind := range messages()[:3] {
			into := fresh(kind)
			if err := wire.Decode(input, into); err != nil {
				if !errors.Is(err, wire.ErrProtocol) {
					t.Errorf("got %v", err)
				}
				continue
			}
			again := fresh(kind)
			if err := wire.Decode(wire.Encode(into), again); err != nil || !reflect.DeepEqual(into, again) {
				t.Errorf("%+v came as %+v, %v", into, again, err)
			}
		}
		_, _ = wire.ReadFallback(bytes.NewReader(input))
		_, _ = wire.ReadListening(bytes.NewReader(input))
	})
}

// BenchmarkMessages encodes and decodes the messages of a call in a devcontainer, and reports their
// size.
func BenchmarkMessages(b *testing.B) {
	for _, c := range []struct {
		name    string
		message wire.Message
	}{
		{"start", &wire.Start{
			Argv: []string{"/bin/sh", "-c", "go test ./..."}, User: "vscode", Dir: "/workspaces/app",
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=4f1c2d3e4a5b", "LANG=C.UTF-8", "GOPATH=/go",
				"GOLANG_VERSION=1.26.0", "NODE_VERSION=22.11.0", "PYTHONUNBUFFERED=1", "HOME=/home/vscode",
			},
			Probe: wire.Probe{
				Kind: "loginInteractiveShell", Shell: "/bin/bash",
				Dir: "/",
			}, RemoteEnv: []string{"A=b"}, Grace: 2 * time.Second, PassedFDs: true,
		}},
		{"started", &wire.Reply{Started: &wire.Started{PID: 12345}}},
		{"exited", &wire.Reply{Exited: &wire.Exited{Code: 1, Proven: true}}},
		{"stop", &wire.Request{Stop: &wire.Stop{Grace: time.Second}}},
	} {
		packed := wire.Encode(c.message)
		b.Run(c.name+"/write", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wire.Encode(c.message)
			}
			b.ReportMetric(float64(len(packed)), "bytes")
		})
		b.Run(c.name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := wire.Decode(packed, fresh(c.message)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
