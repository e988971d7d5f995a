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

// EX-07: from low to high the engine's variables, the call's, the configuration's; each name once.
func TestEnvironmentOrder(t *testing.T) {
	a := &agent{}
	list := func(kv ...string) []string { return kv }
	env, warnings := a.environment(nil, wire.Start{
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
	if env, _ := a.environment(nil, wire.Start{Env: list("HOME=/image's")},
		user{home: "/home/me"}); env[0] != "HOME=/image's" {
		t.Errorf("a HOME of the image's goes before the user's: %q", env)
	}
}

// A shell's startup files that change are seen, those that stay are not read again.
func TestProbeCache(t *testing.T) {
	home := t.TempDir()
	var c probeCache
	ask := func() bool {
		p, mine := c.getOrCreate("key", c.startupFiles(home))
		if mine {
			close(p.done)
		}
		return mine
	}
	if !ask() || ask() {
		t.Error("the second question was put again")
	}
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("export A=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !ask() || ask() {
		t.Error("a new .bashrc was not seen, or seen twice")
	}
	for i := range 200 {
		c.getOrCreate(string(rune('a'+i)), "")
	}
	if len(c.entries) > 100 {
		t.Errorf("%d answers are kept", len(c.entries))
	}
}
