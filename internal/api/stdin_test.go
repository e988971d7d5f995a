package api_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// echo is a tool that writes its stdin to stdout.
func echo(_ context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
	sink.Started()
	if c.Stdin != nil {
		b, err := io.ReadAll(c.Stdin)
		if err != nil {
			return dray.Result{}, err
		}
		sink.Output(dray.Stdout, b)
	}
	return exited(0), nil
}

func TestStdinOfRequest(t *testing.T) {
	d := start(t, func(p *fakeDeps) { p.run = echo })
	for body, want := range map[string]string{
		`{"tool":"exec","stdin":"täxt\n"}`:          "täxt\n",
		`{"tool":"exec","stdin_base64":"AP/+Cg=="}`: "\x00\xff\xfe\n",
		`{"tool":"exec","stdin":""}`:                "",
		`{"tool":"exec"}`:                           "",
	} {
		var got []byte
		for _, l := range d.follow("POST", "/v1/invocations", body).all() {
			got = append(append(got, l.Text...), l.Base64...)
		}
		if string(got) != want {
			t.Errorf("%s: %q", body, got)
		}
	}
}

// Repeated writes are harmless; gaps and bytes after the end are refused (EX-20).
func TestWriteStdin(t *testing.T) {
	d := start(t, func(p *fakeDeps) { p.run = echo })
	f := d.follow("POST", "/v1/invocations", `{"tool":"exec","stdin_open":true}`)
	write := func(query, body string, status int, want string) {
		t.Helper()
		a := d.do("POST", "/v1/invocations/"+f.id()+"/stdin"+query, body,
			"Content-Type: application/octet-stream")
		if a.status != status || !strings.Contains(string(a.body), want) {
			t.Errorf("%s %q: %d %s", query, body, a.status, a.body)
		}
	}
	write("?offset=0", "one ", 200, `{"accepted":4}`)
	write("?offset=0", "one ", 200, `{"accepted":4}`)
	write("", "two ", 200, `{"accepted":8}`)
	write("?offset=2", "e two three", 200, `{"accepted":13}`)
	write("?offset=20", "x", 409, `"accepted":13`)
	write("?offset=13&eof=1", " end", 200, `{"accepted":17}`)
	rest := f.all()
	if last := rest[len(rest)-2]; last.Text != "one two three end" {
		t.Errorf("the tool read %q", last.Text)
	}
	write("?offset=13&eof=1", " end", 200, `{"accepted":17}`) // a client repeats a write without a response
	write("", "more", 409, "conflict")
	write("?eof=1", "", 200, `{"accepted":17}`)
}

func TestWriteStdin_NotOpen(t *testing.T) {
	d := start(t, nil)
	rec := d.do("POST", "/v1/invocations", callBody).record(t)
	if a := d.do("POST", "/v1/invocations/"+rec.ID+"/stdin", "x"); a.status != 409 || a.problem(t).
		Code != dray.CodeConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Stdin is buffered up to a bound. A write beyond it writes nothing and can be repeated (EX-20).
func TestWriteStdin_ToolDoesNotRead(t *testing.T) {
	read := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			<-read
			return echo(ctx, c, sink)
		}
	})
	f := d.follow("POST", "/v1/invocations", `{"tool":"exec","stdin_open":true}`)
	path := "/v1/invocations/" + f.id() + "/stdin"
	chunk := strings.Repeat("x", 100<<10)
	for range 2 {
		if a := d.do("POST", path, chunk); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := d.do("POST", path, chunk)
	if p := a.problem(t); a.status != 429 || p.Code != dray.CodeBusy ||
		a.header.Get("Retry-After") != "1" || *p.Accepted != 200<<10 {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = d.do("POST", path, strings.Repeat("x", 300<<10))
	if p := a.problem(t); a.status != 413 || !strings.Contains(p.Hint, "offset") ||
		*p.Accepted != 200<<10 {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(read)
	long := strings.Repeat("y", 900<<10)
	if a := d.do("POST", path+"?offset=204800&eof=1", long); a.status != 200 || string(a.body) != `{"accepted":1126400}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	var got bytes.Buffer
	for _, l := range f.all() {
		got.WriteString(l.Text)
	}
	if got.String() != chunk+chunk+long {
		t.Errorf("the tool read %d bytes", got.Len())
	}
}
