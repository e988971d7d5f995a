package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/internal/wire"
)

// TestMain runs the agent's own program where a test starts this binary as an agent or a
// supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && (os.Args[1] == "supervise" || os.Args[1] == "serve") {
		if err := run(os.Args[1:]); err != nil {
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// From low to high precedence: the engine's variables, the call's, the configuration's. Each name
// occurs once (EX-07).
func TestEnvironmentOrder(t *testing.T) {
	a := &agent{}
	list := func(kv ...string) []string { return kv }
	env, warnings := a.environment(t.Context(), wire.Start{
		Env: list("PATH=/engine", "A=engine", "B=engine", "C=engine",
			"PATH=/image"), CallEnv: list("B=call", "C=call", "=odd", "none"), RemoteEnv: list("C=remote"),
	}, user{home: "/home/me"})
	slices.Sort(env)
	if want := []string{
		"A=engine", "B=call", "C=remote", "HOME=/home/me",
		"PATH=/image",
	}; !slices.Equal(env, want) || warnings != nil {
		t.Errorf("got %q, %q, want %q", env, warnings, want)
	}
	if env, _ := a.environment(t.Context(), wire.Start{Env: list("HOME=/image's")},
		user{home: "/home/me"}); env[0] != "HOME=/image's" {
		t.Errorf("the image's HOME does not override the user's: %q", env)
	}
}

// The shell runs again only when a startup file has changed.
func TestProbeCache(t *testing.T) {
	home := t.TempDir()
	var c probeCache
	run := func() bool {
		p, created := c.getOrCreate("key", c.startupFiles(home))
		if created {
			close(p.done)
		}
		return created
	}
	if !run() || run() {
		t.Error("the shell runs again without a change")
	}
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("export A=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !run() || run() {
		t.Error("after a change of .bashrc the shell does not run exactly once")
	}
	for i := range 200 {
		c.getOrCreate(string(rune('a'+i)), "")
	}
	if len(c.entries) > 100 {
		t.Errorf("%d environments are cached", len(c.entries))
	}
}
