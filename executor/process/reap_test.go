package process

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A supervisor reaps a bounded number of children at once, so that processes that fork and exit all
// the time keep it neither from its messages nor from KILL (EX-09, EX-10).
func TestReapIsBounded(t *testing.T) {
	const children = 2*maxReaped + maxReaped/2
	for range children {
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		_ = p.Release()
	}
	r := &supervisedCall{supervisorLoop: &supervisorLoop{}, leader: -1}
	for left := children - maxReaped; left > 0; left -= maxReaped {
		r.reap()
		if n := len(ownChildren()); n != left || !r.unreaped || r.empty {
			t.Fatalf("%d children are left, want %d: %+v", n, left, r)
		}
	}
	if r.reap(); !r.empty || r.unreaped {
		t.Errorf("got %+v", r)
	}
}
