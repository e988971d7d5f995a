package server_test

import (
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

func TestOutputThatIsKeptNoMore(t *testing.T) {
	d := start(t, nil)
	res := exited(0)
	res.Stdout.KeptBytes = 5
	d.trail.put(dray.NewRecord(dray.Invocation{ID: someID, Principal: me}, time.Now()).End(res))
	a := d.do("GET", "/v1/invocations/"+someID+"/output/stdout", "")
	if a.status != 404 || !strings.Contains(a.problem(t).Detail, "no more") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.do("GET", "/v1/invocations/"+someID+"/output/stderr", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
