package workspace

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// A container that dray did not make is named while the daemon runs, by name, id or label, with
// mappings, user and folder, and keeps its name over a restart. A cached environment ends with its
// name (RT-12).
func TestRegister(t *testing.T) {
	w := newFixture(t, Config{Named: map[string]Named{"configured": {ID: "x"}}})
	id := w.docker("run", "-d", "--init", "--label", "dray.test.register="+t.Name(), busybox,
		"sleep", "1000000")
	t.Cleanup(func() { w.docker("rm", "-f", id) })
	mapping := []Mapping{{Host: "/srv/dumps", Container: "/var/dumps"}}
	for name, reg := range map[string]Registration{
		"by-id":    {ID: id, Mappings: mapping, User: "nobody", Folder: "/tmp"},
		"by-name":  {ID: strings.TrimPrefix(w.docker("inspect", "-f", "{{.Name}}", id), "/")},
		"by-label": {Label: "dray.test.register=" + t.Name()},
		"later":    {ID: "not-there-yet"},
	} {
		state, err := w.Register(t.Context(), name, reg)
		if err != nil {
			t.Fatal(err)
		}
		if name != "later" && (state.State != Running || state.ID != id) {
			t.Errorf("%s: %+v", name, state)
		}
		if name == "later" && state.State != Discovered {
			t.Errorf("%+v", state)
		}
		if state.Breaker != BreakerClosed {
			t.Errorf("%s has the breaker %q (RE-03)", name, state.Breaker)
		}
		if _, err := w.Register(t.Context(), name, reg); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
	}
	w.settle(request{name: "by-id"})
	_, err := w.Register(t.Context(), "by-id", Registration{ID: "other"})
	wantCode(t, "another container of the name", err, dray.CodeConflict)
	_, err = w.Register(t.Context(), "configured", Registration{ID: id})
	wantCode(t, "a configured name", err, dray.CodeConflict)
	wantCode(t, "a configured name", w.Unregister("configured"), dray.CodeConflict)
	w.Close()

	next := newFixture(t, Config{State: w.cfg.State})
	if got := next.sh(request{name: "by-id"}, "id -un; pwd"); got != "nobody\n/tmp" {
		t.Errorf("got %q", got)
	}
	mounts, err := next.Mounts(t.Context(), "", "by-id")
	if err != nil || len(mounts) == 0 || mounts[0].Container != "/var/dumps" {
		t.Errorf("mounts %+v, %v", mounts, err)
	}
	for _, name := range []string{"by-name", "by-label"} {
		if got := next.sh(request{name: name}, "hostname"); got != id[:12] {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := next.Unregister("by-id"); err != nil {
		t.Error(err)
	}
	_, err = next.env(request{name: "by-id"})
	wantCode(t, "a name that was removed", err, dray.CodeContainerNotFound)
	wantCode(t, "removing it again", next.Unregister("by-id"), dray.CodeNotFound)
}

// A registration follows the rules of the configuration.
func TestRegister_Refuses(t *testing.T) {
	for what, reg := range map[string]Registration{
		"neither":         {},
		"both":            {ID: "a", Label: "k=v"},
		"a bad id":        {ID: "a b"},
		"an id as option": {ID: "--all"},
		"no label":        {Label: "k"},
		"no key":          {Label: "=v"},
		"two lines":       {Label: "k=v\nw"},
		"a user":          {ID: "a", User: "a\x00b"},
		"a long user":     {ID: "a", User: strings.Repeat("a", 5000)},
		"relative":        {ID: "a", Folder: "tmp"},
		"dots":            {ID: "a", Folder: "/tmp/../etc"},
		"unclean":         {ID: "a", Folder: "/tmp/"},
		"everything":      {ID: "a", Mappings: []Mapping{{Host: "/", Container: "/a"}}},
		"no host":         {ID: "a", Mappings: []Mapping{{Container: "/a"}}},
		"nested":          {ID: "a", Mappings: []Mapping{{Host: "/a", Container: "/a/b"}}},
		"twice": {
			ID: "a", Mappings: []Mapping{{Host: "/a", Container: "/c"}, {Host: "/b", Container: "/c"}},
		},
	} {
		wantCode(t, what, reg.check("name"), dray.CodeInvalidRequest)
	}
	for _, name := range []string{"", "host", "a/b", "-a", "a\x00", strings.Repeat("a", 5000)} {
		wantCode(t, name, Registration{ID: "a"}.check(name), dray.CodeInvalidRequest)
	}
	if err := (Registration{Label: "k="}).check("n"); err != nil {
		t.Errorf("a label without a value: %v", err)
	}
}

// A damaged file of registrations does not prevent the start.
func TestRegister_DamagedFile(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(state+"/containers.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, Config{State: state})
	if _, err := w.Register(t.Context(), "a", Registration{ID: "b"}); err != nil || !w.IsRegistered("a") {
		t.Error(err)
	}
}

// A call runs in a container whose health check fails or has not succeeded yet, as with
// `devcontainer exec`.
func TestUnhealthyContainer(t *testing.T) {
	w := newFixture(t, Config{})
	id := w.docker("run", "-d", "--init", "--network=none", "--health-cmd=test -e /healthy",
		"--health-interval=200ms", "--health-retries=1", busybox, "sleep", "1000000")
	t.Cleanup(func() { w.docker("rm", "-f", id) })
	if _, err := w.Register(t.Context(), "sick", Registration{ID: id}); err != nil {
		t.Fatal(err)
	}
	if got := w.sh(request{name: "sick"}, "echo starting"); got != "starting" {
		t.Errorf("got %q", got)
	}
	giveUp := time.Now().Add(time.Minute)
	for health := ""; health != "unhealthy"; {
		health = w.docker("inspect", "-f", "{{.State.Health.Status}}", id)
		if time.Now().After(giveUp) {
			t.Fatalf("its health is %s", health)
		}
	}
	if got := w.sh(request{name: "sick"}, "touch /healthy; echo repaired"); got != "repaired" {
		t.Errorf("got %q", got)
	}
	if c, err := w.engine.Inspect(t.Context(), id); err != nil || !c.Running() {
		t.Errorf("it is %s, %v", c.Status, err)
	}
}
