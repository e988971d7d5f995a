package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dray-dev/dray/executor/process"
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
	r := reportAlone(t, cmd)
	if r.Stdout != string(want) || !strings.HasPrefix(r.Stdout, "512\n4000\n") {
		t.Errorf("got %q, want %q", r.Stdout, want)
	}
}

// A tool has the limit of its stack from its first instruction on, each time (PY-23).
func TestStackLimit(t *testing.T) {
	pool := newPool(t)
	for i := range 50 {
		got := collect(start(t, pool, process.Spec{
			Argv: []string{"/bin/sh", "-c", "ulimit -s"}, Dir: "/", Stack: 48 << 20,
		}))
		if got.stdout != "49152\n" {
			t.Fatalf("start %d has the limit %q", i, got.stdout)
		}
	}
}

// timerSlackFile has the timer slack of the main thread of the program that reads it.
const timerSlackFile = "/proc/self/timerslack_ns"

// A tool has the timer slack and the variables with which the pool's program was started, although
// that program, as the daemon, and its supervisors have set others (EX-16, docs/adr/0028).
func TestTimerSlackIsInherited(t *testing.T) {
	own, err := os.ReadFile(timerSlackFile)
	if err != nil {
		t.Skip("this kernel does not report timer slack")
	}
	const script = "cat " + timerSlackFile + "; env | grep TIMER_SLACK"
	got := collect(shell(t, newPool(t), script, 0))
	if got.stdout != string(own) {
		t.Errorf("the tool printed %q, want its timer slack %q", got.stdout, own)
	}
	restarted := reportAlone(t, exec.Command("/proc/self/exe", aloneArg, script))
	want := fmt.Sprintln(process.DaemonTimerSlack.Nanoseconds())
	if restarted.Slack != want || restarted.Stdout != string(own) {
		t.Errorf("the program has %q, want %q; its tool printed %q, want %q", restarted.Slack, want,
			restarted.Stdout, own)
	}
}

// reportAlone runs a command that ends in runAlone.
func reportAlone(t *testing.T, cmd *exec.Cmd) (r lostReport) {
	t.Helper()
	cmd.Env, cmd.Stderr = supervisorEnv(), os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}
