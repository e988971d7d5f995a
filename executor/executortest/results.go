package executortest

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// testResults: each process of a call has its id and an empty directory of its own, which is
// reported if something is in it, however the process ended, and is gone afterwards (EX-23).
func testResults(t *testing.T, h Harness) {
	if c := h.caps().Container; c != nil && c.Transport == "engine" {
		got := finish(h.startCall(t, `echo "$DRAY_CALL_ID $DRAY_RESULTS"`), nil)
		if got.stdout != "the-call \n" || got.exit.Results != nil {
			t.Errorf("got %+v", got)
		}
		return
	}
	for name, c := range map[string]struct {
		script string
		left   bool
	}{
		"nothing":           {script: `ls -A "$DRAY_RESULTS"`},
		"a failure":         {script: `touch "$DRAY_RESULTS/a"; exit 3`, left: true},
		"a signal":          {script: `touch "$DRAY_RESULTS/a"; kill -9 $$`, left: true},
		"removed":           {script: `rmdir "$DRAY_RESULTS" 2>/dev/null || true`},
		"a directory":       {script: `mkdir -p "$DRAY_RESULTS/a/b"`, left: true},
		"without rights":    {script: `cd "$DRAY_RESULTS"; mkdir -p a/b; chmod 0 a/b a .`, left: true},
		"a symlink in it":   {script: `ln -s /etc "$DRAY_RESULTS/a"`, left: true},
		"a FIFO":            {script: `mkfifo "$DRAY_RESULTS/a"`, left: true},
		"odd names":         {script: `touch "$DRAY_RESULTS/$(printf 'a\nb\377')"`, left: true},
		"deep":              {script: `cd "$DRAY_RESULTS"; i=0; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done`, left: true},
		"a variable of its": {script: `case "$DRAY_RESULTS" in /*) ;; *) exit 9;; esac`},
	} {
		t.Run(name, func(t *testing.T) {
			got := finish(h.startCall(t, `echo "$DRAY_CALL_ID $DRAY_RESULTS"; `+c.script), nil)
			id, dir, _ := strings.Cut(strings.TrimSpace(got.stdout), " ")
			if id != "the-call" || !strings.HasPrefix(dir, "/") || got.err != nil {
				t.Fatalf("got %+v", got)
			}
			h.wantResults(t, got.exit, dir, c.left)
		})
	}
	t.Run("two at once", func(t *testing.T) {
		one := h.startCall(t, `echo "$DRAY_RESULTS"; cat; ls -A "$DRAY_RESULTS"`)
		two := finish(h.startCall(t, `echo "$DRAY_RESULTS"; touch "$DRAY_RESULTS/two"`), nil)
		first := finish(one, nil)
		dir := strings.TrimSpace(first.stdout)
		if dir == strings.TrimSpace(two.stdout) || strings.Contains(dir, "\n") {
			t.Errorf("got %q and %q", first.stdout, two.stdout)
		}
		h.wantResults(t, first.exit, dir, false)
		h.wantResults(t, two.exit, strings.TrimSpace(two.stdout), true)
	})
	t.Run("replaced by a symlink", func(t *testing.T) {
		got := finish(h.startCall(t, `rmdir "$DRAY_RESULTS" && ln -s /etc "$DRAY_RESULTS"
			echo "$DRAY_RESULTS"`), nil)
		// only a tool with the user of the agent or the daemon can do that
		h.wantResults(t, got.exit, strings.TrimSpace(got.stdout), got.exit.Results != nil)
	})
	h.testSessionState(t)
	t.Run("stopped", func(t *testing.T) {
		p := h.startCall(t, `touch "$DRAY_RESULTS/a"; echo "$DRAY_RESULTS"; exec sleep 600`)
		dir := pid(t, p) // its first line
		p.Stop(0)
		h.wantResults(t, collect(p).exit, dir, true)
	})
}

// testSessionState: what the shell of a session leaves is returned and removed, and nothing that
// the tool put in its place (SS-01).
func (h Harness) testSessionState(t *testing.T) {
	for name, c := range map[string]struct {
		script, state string
		left          bool
	}{
		"a state":            {script: `printf 'a\000b\377' >"$f"`, state: "a\x00b\xff"},
		"beside a file":      {script: `echo a >"$f"; touch "$f.more"`, state: "a\n", left: true},
		"a state too large":  {script: `head -c 200000 /dev/zero >"$f"`},
		"a symlink as state": {script: `ln -s /etc/passwd "$f"`},
		"a FIFO as state":    {script: `mkfifo "$f"`},
		"a hard link":        {script: `echo a >"$f"; ln "$f" "$f.more"`, left: true},
		"a directory":        {script: `mkdir "$f"`, left: true},
	} {
		t.Run("session/"+name, func(t *testing.T) {
			got := finish(h.startCall(t, `f=$DRAY_RESULTS/`+dray.SessionStateName+`
				echo "$DRAY_RESULTS"; `+c.script), nil)
			if string(got.exit.SessionState) != c.state || got.exit.Code != 0 {
				t.Errorf("got %q, exit %d", got.exit.SessionState, got.exit.Code)
			}
			h.wantResults(t, got.exit, strings.TrimSpace(got.stdout), c.left)
		})
	}
}

// startCall starts a shell that belongs to a call whose caller sets the variables too.
func (h Harness) startCall(t *testing.T, script string) dray.Process {
	t.Helper()
	return h.start(t, dray.ProcessSpec{
		Argv: []string{"/bin/sh", "-c", script}, CallID: "the-call",
		Env: map[string]string{dray.EnvCallID: "another", dray.EnvResults: "/etc"},
	})
}

// wantResults checks the directory of an exit, and that it can be removed.
func (h Harness) wantResults(t *testing.T, exit dray.Exit, dir string, left bool) {
	t.Helper()
	if (exit.Results != nil) != left || left && exit.Results.Path != dir {
		t.Fatalf("got %+v of %s", exit.Results, dir)
	}
	if left {
		exit.Results.Remove()
	}
	gone := func() bool {
		got := finish(h.shell(t, `[ ! -e "$1" ] && [ ! -L "$1" ]`, dir), nil)
		return got.err == nil && got.exit.Code == 0
	}
	for range 1000 { // an agent removes it meanwhile
		if gone() {
			return
		}
	}
	t.Errorf("%s is still there", dir)
}
