package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func TestOutputRanges(t *testing.T) {
	d := start(t, nil)
	rec := d.do("POST", "/v1/invocations", callBody).record(t)
	d.captures[rec.ID+".stdout"] = []byte("0123456789")
	path := "/v1/invocations/" + rec.ID + "/output/"
	for _, c := range []struct {
		stream, ranges string
		status         int
		body           string
	}{
		{"stdout", "", 200, "0123456789"},
		{"stdout", "bytes=2-4", 206, "234"},
		{"stdout", "bytes=-3", 206, "789"},
		{"stdout", "bytes=8-", 206, "89"},
		{"stderr", "", 200, ""},
	} {
		headers := []string{}
		if c.ranges != "" {
			headers = append(headers, "Range: "+c.ranges)
		}
		a := d.do("GET", path+c.stream, "", headers...)
		if a.status != c.status || string(a.body) != c.body ||
			a.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s %s: %d %v %q", c.stream, c.ranges, a.status, a.header, a.body)
		}
	}
	for _, c := range []struct{ ranges, contentRange, contains string }{
		{"bytes=10-", "bytes */10", "outside of the captured output (bytes */10)"},
		{"bytes=-0", "bytes */10", "outside of the captured output (bytes */10)"},
		{"bytes=4-2", "", "invalid Range"},
		{"lines=1-2", "", "invalid Range"},
	} {
		a := d.do("GET", path+"stdout", "", "Range: "+c.ranges)
		p := a.problem(t)
		if a.status != 416 || p.Status != 416 || p.Code != dray.CodeInvalidRequest ||
			a.header.Get("Content-Range") != c.contentRange || !strings.Contains(p.Detail, c.contains) {
			t.Errorf("%s: %d %v %s", c.ranges, a.status, a.header, a.body)
		}
	}
}

func TestOutput_Running(t *testing.T) {
	k := newScriptedOutput()
	d := start(t, func(p *fakeDeps) { p.run = k.run })
	f := d.follow("POST", "/v1/invocations", callBody)
	k.print(dray.Stdout, "so ")
	k.print(dray.Stderr, "!")
	k.print(dray.Stdout, "far")
	k.do <- func(dray.Sink) {} // the output before has been added
	if a := d.do("GET", "/v1/invocations/"+f.id()+"/output/stdout", ""); a.status != 200 ||
		string(a.body) != "so far" {
		t.Errorf("%d %q", a.status, a.body)
	}
	close(k.done)
}

// summary returns the summary of a stream that consists of text.
func summary(text string) dray.StreamSummary {
	sum := sha256.Sum256([]byte(text))
	n := int64(len(text))
	return dray.StreamSummary{
		Text: text, HeadBytes: n, TotalBytes: n, KeptBytes: n,
		SHA256: hex.EncodeToString(sum[:]),
	}
}

// Output without a capture file is served from the record, in memory and in the audit log.
func TestOutput_FromRecord(t *testing.T) {
	res := exited(0)
	res.Stdout, res.Stderr = summary("0123456789"), summary(strings.Repeat("e", 100<<10))
	d := start(t, func(p *fakeDeps) {
		p.run = func(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
			sink.Output(dray.Stdout, []byte(res.Stdout.Text))
			sink.Output(dray.Stderr, []byte(res.Stderr.Text))
			return res, nil
		}
	})
	inMemory := d.do("POST", "/v1/invocations", callBody).record(t).ID
	d.audit.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: selfPrincipal}, time.Now()).
		WithResult(res))
	for _, id := range []string{inMemory, someID} {
		a := d.do("GET", "/v1/invocations/"+id+"/output/stdout", "", "Range: bytes=2-4")
		if a.status != 206 || string(a.body) != "234" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := d.do("GET", "/v1/invocations/"+id+"/output/stderr", ""); a.status != 200 ||
			string(a.body) != res.Stderr.Text {
			t.Errorf("%d with %d bytes", a.status, len(a.body))
		}
	}
}

// Output that retention removed or that was lost is not served as empty output.
func TestOutput_RemovedOrLost(t *testing.T) {
	d := start(t, nil)
	res := exited(0)
	res.Stdout.KeptBytes = 5
	d.audit.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: selfPrincipal}, time.Now()).
		WithResult(res))
	a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", "")
	if p := a.problem(t); a.status != 404 || p.Code != dray.CodeNotFound ||
		!strings.Contains(p.Detail, "retention") || !strings.Contains(p.Hint, "limits.captures_keep") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stderr", ""); a.status != 200 ||
		len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	interrupted := dray.Result{Reason: dray.ReasonInterrupted, EndedAt: time.Now()}
	d.audit.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: selfPrincipal}, time.Now()).
		WithResult(interrupted))
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", ""); a.status != 404 ||
		!strings.Contains(a.problem(t).Detail, "killed") {
		t.Errorf("%d %s", a.status, a.body)
	}
	d.captures[someID+".stdout"] = []byte("partial")
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", ""); a.status != 200 ||
		string(a.body) != "partial" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Output without a capture file is served from memory until the call ends. If a flood on the other
// stream replaced it in memory, the request fails until the record has it.
func TestOutput_OnlyInMemory(t *testing.T) {
	k := newScriptedOutput()
	res := exited(0)
	res.Stderr = summary("little")
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			_, _ = k.run(ctx, c, sink)
			return res, nil
		}
	})
	f := d.follow("POST", "/v1/invocations", callBody)
	path := "/v1/invocations/" + f.id()
	k.print(dray.Stderr, "little")
	k.do <- func(dray.Sink) {} // the output before has been added
	if a := d.do("GET", path+"/output/stderr", ""); a.status != 200 || string(a.body) != "little" {
		t.Errorf("%d %s", a.status, a.body)
	}
	k.print(dray.Stdout, strings.Repeat("much", 2<<20))
	k.do <- func(dray.Sink) {}
	a := d.do("GET", path+"/output/stderr", "")
	if a.status != 409 || a.problem(t).Code != dray.CodeConflict ||
		!strings.Contains(a.problem(t).Hint, "end of the call") {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(k.done)
	d.do("GET", path+"?wait_ms=60000", "")
	if a := d.do("GET", path+"/output/stderr", ""); a.status != 200 || string(a.body) != "little" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A stream with rewritten paths has two texts, from files and from the record (PM-10).
func TestOutput_Rewritten(t *testing.T) {
	rewritten := summary("0123456789")
	rewritten.Rewritten = &dray.RewrittenSummary{
		Paths: 1, TotalBytes: 10, KeptBytes: 10,
		SHA256: rewritten.SHA256,
	}
	removed := rewritten
	removed.SHA256, removed.Rewritten = summary("other").
		SHA256, &dray.RewrittenSummary{Paths: 1, TotalBytes: 5, KeptBytes: 5, SHA256: summary("more").
		SHA256}
	for _, c := range []struct {
		name           string
		stdout         dray.StreamSummary
		raw, rewritten string            // captured files
		want           map[string]string // by the parameter; - is not found
	}{
		{
			"in files", removed, "/workspace", "/home/me",
			map[string]string{
				"": "/workspace", "false": "/workspace", "true": "/home/me",
				"auto": "/home/me",
			},
		},
		{
			"in the record", rewritten, "", "",
			map[string]string{"": "0123456789", "true": "0123456789", "auto": "0123456789"},
		},
		{
			"raw in a file", withOtherDigest(rewritten), "/workspace", "",
			map[string]string{"": "/workspace", "true": "0123456789"},
		},
		{"removed", removed, "", "", map[string]string{"": "-", "true": "-", "auto": "-"}},
		{
			"not rewritten", summary("raw"), "", "",
			map[string]string{"": "raw", "true": "-", "auto": "raw"},
		},
		{
			"not rewritten, in a file", withOtherDigest(summary("raw")), "raw text", "",
			map[string]string{"": "raw text", "true": "-", "auto": "raw text"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exited(0)
			res.Stdout = c.stdout
			d := start(t, func(p *fakeDeps) {
				p.run = func(context.Context, dray.Call, dray.Sink) (dray.Result, error) { return res, nil }
			})
			fresh := d.do("POST", "/v1/invocations", callBody).record(t).ID
			d.audit.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: selfPrincipal}, time.Now()).
				WithResult(res))
			for _, id := range []string{fresh, someID} {
				for name, text := range map[string]string{".stdout": c.raw, ".rewritten.stdout": c.rewritten} {
					if text != "" {
						d.captures[id+name] = []byte(text)
					}
				}
				for parameter, want := range c.want {
					checkOutput(t, d, id, parameter, want)
				}
			}
		})
	}
}

// The raw text of a stream is not served in place of a removed rewritten text.
func TestOutput_RewrittenRemoved(t *testing.T) {
	res := exited(0)
	res.Stdout = summary("the head")
	res.Stdout.SHA256 = summary("/workspace").SHA256
	res.Stdout.Rewritten = &dray.RewrittenSummary{
		Paths: 1, TotalBytes: 8, KeptBytes: 8,
		SHA256: summary("/home/me").SHA256,
	}
	d := start(t, nil)
	d.audit.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: selfPrincipal}, time.Now()).
		WithResult(res))
	d.captures[someID+".stdout"] = []byte("/workspace")
	for parameter, want := range map[string]string{"": "/workspace", "true": "-", "auto": "-"} {
		checkOutput(t, d, someID, parameter, want)
	}
}

// checkOutput requests one text of a stdout, and a range of it. want is - if it is not found.
func checkOutput(t *testing.T, d *daemon, id, parameter, want string) {
	t.Helper()
	path := "/v1/invocations/" + id + "/output/stdout"
	if parameter != "" {
		path += "?rewritten=" + parameter
	}
	a := d.do("GET", path, "")
	if want == "-" {
		if a.status != 404 || a.problem(t).Code != dray.CodeNotFound {
			t.Errorf("%q: %d %s", parameter, a.status, a.body)
		}
		return
	}
	if a.status != 200 || string(a.body) != want {
		t.Errorf("%q: %d %s", parameter, a.status, a.body)
	}
	if a := d.do("GET", path, "", "Range: bytes=1-2"); a.status != 206 || string(a.body) != want[1:3] {
		t.Errorf("range of %q: %d %s", parameter, a.status, a.body)
	}
}

// withOtherDigest returns the summary of a stream that differs from the summary's text.
func withOtherDigest(c dray.StreamSummary) dray.StreamSummary {
	c.SHA256 = summary("other").SHA256
	return c
}

// A running call has rewritten text if it is captured, or if nothing is captured yet.
func TestOutput_RewrittenRunning(t *testing.T) {
	k := newScriptedOutput()
	d := start(t, func(p *fakeDeps) { p.run = k.run })
	f := d.follow("POST", "/v1/invocations", callBody)
	k.print(dray.Stdout, "/home/me")
	k.do <- func(dray.Sink) {} // the output before has been added
	checkOutput(t, d, f.id(), "true", "/home/me")
	d.captures[f.id()+".stdout"] = []byte("/workspace")
	checkOutput(t, d, f.id(), "true", "-")
	d.captures[f.id()+".rewritten.stdout"] = []byte("/home/me")
	checkOutput(t, d, f.id(), "true", "/home/me")
	checkOutput(t, d, f.id(), "auto", "/home/me")
	checkOutput(t, d, f.id(), "", "/workspace")
	close(k.done)
}

// A late reader gets rewritten text also for output that is no longer in memory (PM-10).
func TestEvents_LateReaderOfRewrittenOutput(t *testing.T) {
	text := strings.Repeat("/home/me/app is a path\n", 40_000)
	d := start(t, func(p *fakeDeps) {
		p.run = func(_ context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			p.captures[c.Invocation.ID+".stdout"] = []byte(strings.ReplaceAll(text, "/home/me/app",
				"/workspace"))
			p.captures[c.Invocation.ID+".rewritten.stdout"] = []byte(text)
			sink.Output(dray.Stdout, []byte(text))
			return exited(0), nil
		}
	})
	id := d.do("POST", "/v1/invocations", callBody).record(t).ID
	a := d.do("GET", "/v1/invocations/"+id+"/events", "", "Accept: application/x-ndjson")
	var got strings.Builder
	for line := range strings.Lines(string(a.body)) {
		var ev struct{ Event, Text string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Event == "stdout" {
			got.WriteString(ev.Text)
		}
	}
	if got.String() != text {
		t.Errorf("%d bytes, want %d: %.200q", got.Len(), len(text), got.String())
	}
}
