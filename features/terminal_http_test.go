package features

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// httpTerminal uses the terminal of a call with HTTP requests only.
type httpTerminal struct {
	t    *testing.T
	d    *daemon
	path string
	// seq is the number of the last event read, typed the number of bytes written.
	seq   json.Number
	typed int64
	// unread is the output after the last awaited text, next the offset of its end in the whole
	// output.
	unread string
	next   int64
}

// begin starts a call without waiting for its end.
func (d terminalEnv) begin(t *testing.T, body map[string]any) *httpTerminal {
	t.Helper()
	body["workspace"], body["environment"] = d.root, d.where
	a, err := d.call(t.Context(), "?wait_ms=0", body)
	if err != nil || a.status != http.StatusAccepted {
		t.Fatalf("%v: %d %s", err, a.status, a.raw)
	}
	return &httpTerminal{t: t, d: d.daemon, path: a.header.Get("Location"), seq: "0"}
}

// post sends a request, which must succeed.
func (p *httpTerminal) post(path, body string) answer {
	p.t.Helper()
	a, err := p.d.ask(p.t.Context(), http.MethodPost, p.path+path, body)
	if err != nil || a.status != http.StatusOK {
		p.t.Fatalf("%s: %v: %d %s", path, err, a.status, a.raw)
	}
	return a
}

// types writes twice, like a client that got no response. The bytes must count once.
func (p *httpTerminal) types(text string) {
	p.t.Helper()
	for range 2 {
		a := p.post("/stdin?"+url.Values{"offset": {strconv.FormatInt(p.typed, 10)}}.Encode(), text)
		if want := p.typed + int64(len(text)); fmt.Sprint(a.at("/accepted")) != fmt.Sprint(want) {
			p.t.Fatalf("accepted: %s, want %d", a.raw, want)
		}
	}
	p.typed += int64(len(text))
}

// sees reads the next events over a new connection until stdout contains a text.
func (p *httpTerminal) sees(text string) {
	p.t.Helper()
	p.follow(fmt.Sprintf("%q", text), func() bool {
		_, rest, found := strings.Cut(p.unread, text)
		if found {
			p.unread = rest
		}
		return found
	})
}

// ends reads all events and returns the record in the last one.
func (p *httpTerminal) ends() answer {
	p.t.Helper()
	end := p.follow("the end event", func() bool { return false })
	value, err := decode(end)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{raw: end, value: value}
}

// follow reads events until seen reports true or the call has ended. awaited is for the error.
func (p *httpTerminal) follow(awaited string, seen func() bool) (end []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), ttyTimeout)
	defer cancel()
	resp, err := p.d.send(ctx, http.MethodGet, p.path+"/events?after="+p.seq.String(), nil,
		"application/x-ndjson")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for !seen() {
		if !lines.Scan() {
			p.t.Fatalf("no %s in the events; after the last awaited text came %q: %v", awaited, p.unread,
				lines.Err())
		}
		var event struct {
			Seq         json.Number
			Event, Text string
			Offset      int64
			Invocation  json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			p.t.Fatal(err)
		}
		p.seq = event.Seq
		switch event.Event {
		case "stdout":
			if event.Offset != p.next {
				p.t.Fatalf("output at offset %d, want %d", event.Offset, p.next)
			}
			p.next += int64(len(event.Text))
			p.unread += event.Text
		case "stderr":
			p.t.Errorf("stderr of a terminal is %q", event.Text)
		case "end":
			return event.Invocation
		}
	}
	return nil
}

const newHTTPTerminal = `{"tty": {"columns": 100, "rows": 30}, "stdin_open": true, "tool": "exec",
	"input": {"argv": ["bash", "--norc", "--noprofile"]}, "env": {"PS1": "[\\j jobs, $?] ", "TERM": "dumb"}}`

// A session over HTTP: start, write, read by sequence, resize, interrupt, signal, end. Every write
// is repeated, and every read continues the last one. No output is duplicated or lost (EX-19,
// EX-20).
func TestSessionOverHTTP(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		for name, end := range map[string]struct {
			do           func(*httpTerminal)
			reason, code string
		}{
			// of the last command
			"end of file": {func(p *httpTerminal) { p.post("/stdin?eof=1", "") }, "exited", "130"},
			// to a program that a signal ends at any time: bash 5.2 ignores one that comes between its
			// prompt and its read
			"signal": {func(p *httpTerminal) {
				p.types("exec cat -n\nthere\n")
				p.sees("1\tthere\r\n")
				p.post("/signal", `{"signal": "HUP"}`)
			}, "signalled", "<nil>"},
		} {
			t.Run(name, func(t *testing.T) {
				var body map[string]any
				if err := json.Unmarshal([]byte(newHTTPTerminal), &body); err != nil {
					t.Fatal(err)
				}
				p := d.begin(t, body)
				p.sees("[0 jobs, 0] ")
				p.types("echo once >> " + d.where + ".log; wc -l < " + d.where + ".log; rm " + d.where +
					".log; stty size\n")
				p.sees("1\r\n30 100\r\n")
				p.sees("[0 jobs, 0] ") // before its prompt bash writes back the size that it has read
				p.post("/resize", `{"columns": 132, "rows": 43}`)
				p.types("stty size; stty size >&2\n")
				p.sees("43 132\r\n43 132\r\n")
				p.sees("[0 jobs, 0] ")
				p.types("sleep 100 &\ncat -n\nhere\n")
				p.sees("1\there\r\n")
				p.types("\x03")
				p.sees("[1 jobs, 130] ")
				end.do(p)
				rec := p.ends()
				if rec.at("/reason") != end.reason || fmt.Sprint(rec.at("/exit_code")) != end.code {
					t.Errorf("the record is %s", rec.raw)
				}
				if fmt.Sprint(rec.at("/metadata/kill/survivors")) != "0" ||
					fmt.Sprint(rec.at("/stdout/total_bytes")) != fmt.Sprint(p.next) {
					t.Errorf("the record has another output: %s", rec.raw)
				}
			})
		}
	})
}

// The default timeout does not end a terminal in use: it counts from the last input or output. The
// call's own timeout counts from the start (EX-08, EX-19).
func TestTerminalInUse(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		// the start of the container takes longer than limits.timeout
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": "exec", "input": map[string]any{"argv": []string{"true"}}, "timeout_seconds": 280,
			"workspace": d.root, "environment": d.where,
		})
		if err != nil || a.at("/status") != "succeeded" {
			t.Fatal(err, string(a.raw))
		}
		begin := func(t *testing.T, timeout float64, script string) *httpTerminal {
			body := map[string]any{
				"tool": "shell", "input": map[string]any{"command": script},
				"tty": map[string]any{"columns": 80, "rows": 24}, "stdin_open": true,
			}
			if timeout > 0 {
				body["timeout_seconds"] = timeout
			}
			return d.begin(t, body)
		}
		const printing = `for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; echo $i; done; `
		t.Run("output", func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			wantEnd(t, begin(t, 0, printing).ends(), "exited", "")
		})
		t.Run("input", func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			p := begin(t, 0, `stty -echo; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do read -r line; done`)
			p.sees("ready")
			every := time.NewTicker(500 * time.Millisecond)
			defer every.Stop()
			for range 10 {
				<-every.C
				p.types("line\n")
			}
			wantEnd(t, p.ends(), "exited", "")
		})
		t.Run("no use", func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			wantEnd(t, begin(t, 0, `echo once; sleep 600`).ends(), "timeout", "no input and no output for 3s")
		})
		t.Run("own timeout", func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			wantEnd(t, begin(t, 1.5, printing).ends(), "timeout", "timed out after 1.5s")
		})
	}, "limits: {timeout: 3s, max_timeout: 5m}\n")
}

// A terminal that is always in use is ended by limits.max_timeout (EX-08).
func TestTerminalInUseEnds(t *testing.T) {
	root := newDir(t)
	d := terminalEnv{root: root, where: "host", daemon: startDaemon(t, "host: {roots: ["+root+"]}\n"+
		"limits: {timeout: 3s, max_timeout: 4s}\n")}
	p := d.begin(t, map[string]any{
		"tool": "shell", "input": map[string]any{"command": "while :; do echo; sleep 0.1; done"},
		"tty": map[string]any{"columns": 80, "rows": 24},
	})
	wantEnd(t, p.ends(), "timeout", "timed out after 4s")
}

func wantEnd(t *testing.T, rec answer, reason, message string) {
	t.Helper()
	if rec.at("/reason") != reason || !strings.Contains(fmt.Sprint(rec.at("/error/message")), message) {
		t.Errorf("the record is %s, want reason %s, message %q", rec.raw, reason, message)
	}
}
