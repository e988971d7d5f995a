package executortest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The call's variables are laid over the environment's own.
func testEnvironment(t *testing.T, h Harness) {
	p := h.start(t, dray.ProcessSpec{
		Argv: []string{"/bin/sh", "-c", `tr '\0' '\n' </proc/self/environ; printf '%s|' "$MULTI" "$EMPTY" "$TERM"`},
		Env:  map[string]string{"MULTI": "a\nb = c", "EMPTY": "", "TERM": "of-the-call"},
	})
	got := finish(p, nil)
	h.ok(t, got, 0)
	if !strings.HasSuffix(got.stdout, "a\nb = c||of-the-call|") {
		t.Errorf("got %q", got.stdout)
	}
	lines := strings.Split(got.stdout, "\n")
	for _, want := range h.Set {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is not set in\n%s", want, got.stdout)
		}
	}
	for _, name := range h.Unset {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") }) {
			t.Errorf("%s is set", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "TERM"} {
		if n := strings.Count("\n"+got.stdout, "\n"+name+"="); n != 1 {
			t.Errorf("%s is set %d times", name, n)
		}
	}
}

func testDir(t *testing.T, h Harness) {
	if got := h.sh(t, "pwd -P"); got.stdout != h.Dir+"\n" {
		t.Errorf("got %q, want %q", got.stdout, h.Dir)
	}
	h.ok(t, h.sh(t, `mkdir -p 'with  space/ü' && ln -sfn 'with  space' link`), 0)
	p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "pwd -P"}, Dir: h.Dir + "/link/ü"})
	if got := finish(p, nil); got.stdout != h.Dir+"/with  space/ü\n" {
		t.Errorf("got %q", got.stdout)
	}
	p, err := h.Environment.Start(t.Context(), dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "pwd -P"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := finish(p, nil); got.stdout != h.caps().WorkspaceFolder+"\n" {
		t.Errorf("without a folder: got %q, want the workspace folder %q", got.stdout, h.caps().WorkspaceFolder)
	}
}

// EX-07: user, group and supplementary groups.
func testUser(t *testing.T, h Harness) {
	got := h.sh(t, `echo $(id -u) $(id -g) $(id -G); echo again >/dev/stderr; echo again >/dev/stdout`)
	h.ok(t, got, 0)
	if got.stdout != h.ID+"\nagain\n" || got.stderr != "again\n" {
		t.Errorf("got %q and %q, want %q; the streams can be opened by name", got.stdout, got.stderr, h.ID)
	}
}

// EX-16: nothing above 2 is inherited; umask, signals and limits are those of a fresh exec; the process leads its own session and group.
func testFreshProcess(t *testing.T, h Harness) {
	got := h.sh(t, `umask; while read -r name value; do case $name in SigBlk:|SigIgn:) echo $value;; esac; done </proc/self/status
		echo $(ls /proc/self/fd); echo $$; read -r stat </proc/$$/stat; set -- ${stat##*) }; echo $3 $4; ulimit -n; ulimit -c`)
	h.ok(t, got, 0)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 8 {
		t.Fatalf("got %q", lines)
	}
	ignored := strings.TrimLeft(lines[2], "0")
	if lines[0] != "0022" || strings.Trim(lines[1], "0") != "" || ignored != strings.TrimLeft(h.Ignored, "0") || lines[3] != "0 1 2 3" { // 3 is ls's own
		t.Errorf("umask, blocked and ignored signals, descriptors are %q", lines[:4])
	}
	if want := lines[4] + " " + lines[4]; lines[5] != want {
		t.Errorf("process %s is in group and session %s", lines[4], lines[5])
	}
}
