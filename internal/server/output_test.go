package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func TestOutput(t *testing.T) {
	d := start(t, nil)
	rec := d.do("POST", "/v1/invocations", call).record(t)
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
		if a.status != c.status || string(a.body) != c.body || a.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s %s: %d %v %q", c.stream, c.ranges, a.status, a.header, a.body)
		}
	}
	a := d.do("GET", path+"stdout", "", "Range: bytes=10-")
	if p := a.problem(t); a.status != 416 || p.Status != 416 || p.Code != dray.CodeInvalidRequest || a.header.Get("Content-Range") != "bytes */10" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestOutputWhileTheToolRuns(t *testing.T) {
	k := newTalk()
	d := start(t, func(p *parts) { p.run = k.run })
	f := d.follow("POST", "/v1/invocations", call)
	k.print(dray.Stdout, "so ")
	k.print(dray.Stderr, "!")
	k.print(dray.Stdout, "far")
	k.say <- func(dray.Sink) {} // the one before is done
	if a := d.do("GET", "/v1/invocations/"+f.id()+"/output/stdout", ""); a.status != 200 || string(a.body) != "so far" {
		t.Errorf("%d %q", a.status, a.body)
	}
	close(k.done)
}

// Output that has no file is in the record: of a call that has just ended as of one from long ago, however much the other stream printed.
func TestOutputOfTheRecord(t *testing.T) {
	whole := func(text string) dray.Capture {
		sum := sha256.Sum256([]byte(text))
		n := int64(len(text))
		return dray.Capture{Text: text, HeadBytes: n, TotalBytes: n, KeptBytes: n, SHA256: hex.EncodeToString(sum[:])}
	}
	res := exited(0)
	res.Stdout, res.Stderr = whole("0123456789"), whole(strings.Repeat("e", 100<<10))
	d := start(t, func(p *parts) {
		p.run = func(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
			sink.Output(dray.Stdout, []byte(res.Stdout.Text))
			sink.Output(dray.Stderr, []byte(res.Stderr.Text))
			return res, nil
		}
	})
	inMemory := d.do("POST", "/v1/invocations", call).record(t).ID
	d.trail.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: me}, time.Now()).End(res))
	for _, id := range []string{inMemory, someID} {
		a := d.do("GET", "/v1/invocations/"+id+"/output/stdout", "", "Range: bytes=2-4")
		if a.status != 206 || string(a.body) != "234" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := d.do("GET", "/v1/invocations/"+id+"/output/stderr", ""); a.status != 200 || string(a.body) != res.Stderr.Text {
			t.Errorf("%d and %d bytes", a.status, len(a.body))
		}
	}
}

// What is not there any more is told from what was never printed.
func TestOutputThatIsKeptNoMore(t *testing.T) {
	d := start(t, nil)
	res := exited(0)
	res.Stdout.KeptBytes = 5
	d.trail.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: me}, time.Now()).End(res))
	a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", "")
	if p := a.problem(t); a.status != 404 || p.Code != dray.CodeNotFound || !strings.Contains(p.Detail, "retention") || !strings.Contains(p.Hint, "limits.captures_keep") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stderr", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	interrupted := dray.Result{Reason: dray.ReasonInterrupted, EndedAt: time.Now()}
	d.trail.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: me}, time.Now()).End(interrupted))
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", ""); a.status != 404 || !strings.Contains(a.problem(t).Detail, "died") {
		t.Errorf("%d %s", a.status, a.body)
	}
	d.captures[someID+".stdout"] = []byte("until then")
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", ""); a.status != 200 || string(a.body) != "until then" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
