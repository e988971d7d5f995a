package tool

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// swapping exchanges a directory and a symlink to another directory as fast as it can until it is
// stopped.
func swapping(t *testing.T, b *fixture, outside string) (stop func()) {
	t.Helper()
	turn, away := filepath.Join(b.folder, "turn"), filepath.Join(b.folder, "away")
	over := make(chan struct{})
	var going sync.WaitGroup
	going.Go(func() {
		for {
			_ = os.Rename(turn, away) // a reader in between finds nothing, which is allowed
			_ = os.Symlink(outside, turn)
			_ = os.Remove(turn)
			_ = os.Rename(away, turn)
			select {
			case <-over:
				return
			default:
			}
		}
	})
	return func() { close(over); going.Wait() }
}

// No file tool reads, finds or changes files outside while a directory is exchanged for a symlink
// to it.
func TestFileTools_SymlinkSwapped(t *testing.T) {
	b := newFixture(t)
	outside := realDir(t)
	for _, name := range []string{"file", "other"} {
		write(t, filepath.Join(outside, name), "secret\n")
	}
	b.write(t, "turn/file", "harmless\n", 0o644)
	b.write(t, "turn/edited", "0", 0o644)
	defer swapping(t, b, outside)()
	worked, refused := map[string]int{}, map[string]int{}
	rounds := soakreport.Count(500, 20)
	calls := map[string]object{
		"grep":       {"pattern": "."},
		"glob":       {"pattern": "**/*"},
		"read_file":  {"path": "turn/file"},
		"stat":       {"path": "turn/file"},
		"edit_file":  {"path": "turn/edited"},
		"write_file": {"path": "turn/file", "content": "harmless\n", "mode": "0600"},
	}
	giveUp := time.Now().Add(time.Minute)
	for done := false; !done; {
		if time.Now().After(giveUp) {
			t.Fatalf("worked %v, refused %v", worked, refused)
		}
		done = true
		for name, input := range calls {
			switch n := worked[name]; name { // there is something to change each time
			case "write_file":
				input["mode"] = []string{"0600", "0644"}[n%2]
			case "edit_file":
				input["edits"] = []object{{"old": strconv.Itoa(n % 2), "new": strconv.Itoa((n + 1) % 2)}}
			}
			res := b.call(t, name, input)
			switch {
			case strings.Contains(string(res.Output), "secret") ||
				strings.Contains(string(res.Output), "other"):
				t.Fatalf("%s went outside: %s", name, res.Output)
			case res.Error == nil:
				worked[name]++
			case res.Error.Code == dray.CodePathInvalid || res.Error.Code == dray.CodeConflict:
				refused[name]++
			default:
				t.Fatalf("%s: %+v", name, res.Error)
			}
			done = done && worked[name] >= rounds
		}
	}
	t.Logf("worked %v, refused %v", worked, refused)
	for _, name := range []string{"file", "other"} {
		if got, err := os.ReadFile(filepath.Join(outside, name)); err != nil ||
			string(got) != "secret\n" {
			t.Errorf("outside %s holds %q, %v", name, got, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 2 {
		t.Errorf("outside there is %v, %v", entries, err)
	}
}

// A write that fails because its directory was exchanged leaves no file behind.
func TestWrite_DirectoryExchanged(t *testing.T) {
	b := newFixture(t)
	b.write(t, "turn/file", "old", 0o644)
	b.env = dirSwapEnv{b.env, filepath.Join(b.folder, "turn")}
	failedWith(t, b.call(t, "write_file", object{"path": "turn/file", "content": "new"}),
		dray.CodePathInvalid)
	holds(t, filepath.Join(b.folder, "turn", "file"), "old", 0o644)
}
