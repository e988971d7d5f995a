package command

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

// mountState mounts an ext4 file system as the state directory of a daemon.
func mountState(t *testing.T) func(top string) {
	return func(top string) {
		t.Helper()
		image := filepath.Join(t.TempDir(), "ext4")
		for _, line := range [][]string{
			{"truncate", "--size=64M", image},
			{"mkfs.ext4", "-q", "-m", "0", image},
			{"mkdir", "-m", "700", top + "/state"},
			{"mount", "-o", "loop", image, top + "/state"},
			{"chmod", "700", top + "/state"},
			{"rmdir", top + "/state/lost+found"},
		} {
			if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
				t.Skipf("%v: %v: %s", line, err, out)
			}
		}
		t.Cleanup(func() { _ = unix.Unmount(top+"/state", unix.MNT_DETACH) })
	}
}

// chattr changes the attribute immutable of files: the daemon that has them open cannot write.
func chattr(t *testing.T, flag string, files ...string) {
	t.Helper()
	if out, err := exec.Command("chattr", append([]string{flag}, files...)...).CombinedOutput(); err != nil {
		t.Fatalf("chattr: %v: %s", err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// auditFaults break the audit log of a running daemon until remove is called. A call during the
// fault is refused at once, or waits for the log.
var auditFaults = []struct {
	name   string
	health string // in /healthz
	waits  bool
	cause  func(t *testing.T, state string) (remove func())
}{
	{"disk full", "nearly full", false, func(t *testing.T, state string) func() {
		filler, err := os.Create(state + "/filler")
		must(t, err)
		for block := make([]byte, 64<<10); err == nil; { // until the disk is full
			_, err = filler.Write(block)
		}
		must(t, filler.Close())
		return func() { must(t, os.Remove(filler.Name())) }
	}},
	{"locked", "locked", true, func(t *testing.T, state string) func() {
		db, err := sql.Open("sqlite3", "file:"+state+"/audit.db?_txlock=immediate")
		must(t, err)
		tx, err := db.BeginTx(context.Background(), nil)
		must(t, err)
		return func() {
			must(t, tx.Rollback())
			must(t, db.Close())
		}
	}},
	{"removed", "was removed", false, func(t *testing.T, state string) func() {
		must(t, os.Link(state+"/audit.db", state+"/link"))
		must(t, os.Remove(state+"/audit.db"))
		return func() { must(t, os.Rename(state+"/link", state+"/audit.db")) }
	}},
	{"read-only", "write to the audit log", true, func(t *testing.T, state string) func() {
		files := []string{state + "/audit.db", state + "/audit.db-wal"}
		chattr(t, "+i", files...)
		return func() { chattr(t, "-i", files...) }
	}},
	{"cut short", "was cut short", false, func(t *testing.T, state string) func() {
		whole, err := os.ReadFile(state + "/audit.db")
		must(t, err)
		must(t, os.Truncate(state+"/audit.db", int64(len(whole)/2)))
		return func() {
			f, err := os.OpenFile(state+"/audit.db", os.O_WRONLY, 0)
			must(t, err)
			_, err = f.Write(whole)
			must(t, err)
			must(t, f.Close())
		}
	}},
}

// While the audit log cannot be written nothing runs, and /healthz says why. Calls run again by
// themselves when the cause is removed (AU-01).
func TestFaultsOfTheAuditLog(t *testing.T) {
	d := startAccessDaemon(t, mountState(t))
	for _, fault := range auditFaults {
		t.Run(fault.name, func(t *testing.T) {
			before, _ := d.writes(d.work, "before")
			if status, response := d.as(0, before, "/v1/invocations"); status != "200" {
				t.Fatal(status, response)
			}
			remove := fault.cause(t, d.state)
			body, file := d.writes(d.work, strings.ReplaceAll(fault.name, " ", "-"))
			answer := make(chan string, 1)
			go func() {
				status, response := d.as(0, body, "/v1/invocations")
				answer <- status + " " + response
			}()
			if !fault.waits {
				if got := <-answer; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "audit_unavailable") ||
					!strings.Contains(got, `"hint":"`) {
					t.Errorf("the call: %s", got)
				}
			}
			d.waitForHealth(t, fault.health)
			if _, err := os.Stat(file); err == nil {
				t.Error("the call ran without a record")
			}
			remove()
			if fault.waits {
				if got := <-answer; !strings.HasPrefix(got, "200 ") {
					t.Errorf("the call: %s", got)
				}
			} else if status, response := d.as(0, body, "/v1/invocations"); status != "200" {
				t.Errorf("the next call: %s %s", status, response)
			}
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
			d.waitForHealth(t, `"status":"ok"`)
		})
	}
}

// waitForHealth waits until /healthz has a text.
func (d *accessDaemon) waitForHealth(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		status, response := d.as(0, "", "/healthz")
		if status == "200" && strings.Contains(response, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("/healthz: %s %s, want %s", status, response, want)
		}
	}
}
