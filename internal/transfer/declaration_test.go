package transfer

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/docker"
)

// Two calls at once that declare the same directory, or one inside the other, do not get each
// other's files; a call that ran alone gets its own (SY-11).
func TestDeclared_TwoCallsAtOnce(t *testing.T) {
	w := newFixture(t, nil)
	w.put("tmp/out/a", "of either")
	w.put("tmp/alone/b", "own")
	request := func(id string, paths ...string) Request {
		req := Request{ID: id, Paths: paths}
		req.Declaration = w.Declare(w.box, req)
		return req
	}
	one := request("one", "/tmp/out", "/tmp/alone")
	two := request("two", "/tmp/out/a")
	for _, req := range []Request{one, two} {
		r := w.FetchDeclared(t.Context(), w.box, req)
		if codes := refusedCodes(r); len(codes) != 1 || !strings.HasSuffix(codes[0], " conflict") {
			t.Errorf("%s: got %q", req.ID, codes)
		}
		req.Declaration.End() // the other call ran at the same time all the same
	}
	w.wantRoot(map[string]string{"one/tmp/alone/b": "own"})
	three := request("three", "/tmp/out")
	defer three.Declaration.End()
	if r := w.FetchDeclared(t.Context(), w.box, three); len(r.Refused) > 0 || len(r.Files) != 1 {
		t.Errorf("got %+v", r)
	}
}

// A declared output that does not exist is named as missing, whether the host sees its directory
// or not (SY-11).
func TestDeclared_Missing(t *testing.T) {
	w, host := mountedFixture(t, nil)
	w.put("tmp/there", "x")
	r := w.FetchDeclared(t.Context(), w.box,
		Request{ID: "id", Dir: "/ws", Paths: []string{"absent", "/tmp/absent", "/tmp/there"}})
	want := []string{"/tmp/absent", host + "/absent"}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(r.Missing)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The result files of calls at once come back as those of each alone, bounded as a sync, and their
// directories are gone (EX-23).
func TestResultsDir_Container(t *testing.T) {
	for _, way := range []docker.Options{
		{Transport: docker.TransportAuto}, {Transport: docker.TransportStdio},
	} {
		t.Run(string(way.Transport), func(t *testing.T) { testResultsDir(t, way) })
	}
}

func testResultsDir(t *testing.T, way docker.Options) {
	// no directory of the image is writable, and there is no /tmp
	v := newTestContainer(t, way, nil, "--read-only")
	w := newFixture(t, nil)
	call := func(id, script string) dray.SyncReport {
		p, err := v.Start(t.Context(), dray.ProcessSpec{
			Argv: []string{"sh", "-ec", `cd "$DRAY_RESULTS"; ` + script}, Dir: "/", CallID: id,
		})
		if err != nil {
			t.Error(err)
			return dray.SyncReport{}
		}
		_ = p.Stdin().Close()
		go func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) }()
		_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
		exit, err := p.Wait()
		if err != nil || exit.Results == nil {
			t.Errorf("%s: got %+v, %v", id, exit, err)
			return dray.SyncReport{}
		}
		defer exit.Results.Remove()
		return w.FetchDeclared(t.Context(), v, Request{ID: id, ResultsDir: exit.Results.Path})
	}
	done := make(chan dray.SyncReport)
	for _, id := range []string{"one", "two"} {
		go func() { done <- call(id, `mkdir d; printf `+id+` >d/file; ln -s /etc/passwd link`) }()
	}
	for range 2 {
		r := <-done
		if r.State != dray.SyncComplete || len(r.Files) != 1 || len(r.Refused) != 1 {
			t.Errorf("got %+v", r)
		}
	}
	w.wantRoot(map[string]string{"one/results/d/file": "one", "two/results/d/file": "two"})
	for id, script := range map[string]string{
		"large": `head -c 2000000 /dev/zero >zeros`,
		"many":  `i=0; while [ $i -lt 60 ]; do >$i; i=$((i+1)); done`,
	} {
		if r := call(id, script); r.State == dray.SyncComplete && len(r.Files) > 0 {
			t.Errorf("%s: got %+v", id, r)
		}
	}
	for range 1000 { // the agent removes them meanwhile
		if v.sh("root", `ls -A /dev/shm/.dray-results-*`) == "" {
			return
		}
	}
	t.Errorf("left: %s", v.sh("root", `ls -lA /dev/shm/.dray-results-*`))
}
