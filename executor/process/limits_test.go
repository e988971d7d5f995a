package process_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A tool has the limits, priorities and OOM score of the pool's parent, although Go raises its own
// limit of open files (EX-16).
func TestInheritedLimits(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = "ulimit -Sn; ulimit -Hn; ulimit -c; cut -d' ' -f18,19 /proc/self/stat; cat " +
		"/proc/self/oom_score_adj; ulimit -s"
	setUp := `ulimit -Sn 512; ulimit -Hn 4000; ulimit -Sc 0; `
	want, err := exec.Command("/bin/sh", "-c", setUp+script).Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", setUp+`exec "$1" "$2" "$3"`, "sh", self, aloneArg, script)
	cmd.Env, cmd.Stderr = supervisorEnv(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r lostReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if r.Stdout != string(want) || !strings.HasPrefix(r.Stdout, "512\n4000\n") {
		t.Errorf("got %q, want %q", r.Stdout, want)
	}
}

// A tool has the timer slack of the pool's program, although its supervisor has another one (EX-16,
// docs/adr/0028).
func TestTimerSlackIsInherited(t *testing.T) {
	own, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Skip("this kernel does not report timer slack")
	}
	got := collect(shell(t, newPool(t), "cat /proc/self/timerslack_ns", 0))
	if got.stdout != string(own) {
		t.Errorf("the tool has a timer slack of %q, this program of %q", got.stdout, own)
	}
}
