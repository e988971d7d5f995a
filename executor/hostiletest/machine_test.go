package hostiletest_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// growth returns how much the resident memory of this process, which has the daemon's part, grows
// at most while f runs.
func growth(t *testing.T, f func()) (int64, time.Duration) {
	t.Helper()
	// resets the high-water mark
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	before := memory(t, "VmRSS:")
	begun := time.Now()
	f()
	return memory(t, "VmHWM:") - before, time.Since(begun)
}

func memory(t *testing.T, field string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(status("self", field), "kB")), 10,
		64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// status returns a field of /proc/PID/status.
func status(pid, field string) string {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if value, ok := bytes.CutPrefix(line, []byte(field)); ok {
			return strings.TrimSpace(string(value))
		}
	}
	return ""
}

// described describes processes for a failure message.
func described(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		id := strconv.Itoa(pid)
		words, _ := os.ReadFile("/proc/" + id + "/cmdline")
		fmt.Fprintf(&b, "%d (%s, child of %s, %q) ", pid, status(id, "State:"), status(id, "PPid:"),
			words)
	}
	return b.String()
}

// resident is one process of a container, with its pid on the host.
type resident struct {
	pid     int
	state   string
	command string
}

// residents returns the processes in a container's pid namespace, including zombies.
func (b *testContainer) residents(t testing.TB) []resident {
	t.Helper()
	c, err := b.api.ContainerInspect(t.Context(), b.id, inspectPlain)
	if err != nil || c.Container.State == nil || c.Container.State.Pid == 0 {
		return nil
	}
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.Container.State.Pid))
	if err != nil {
		return nil
	}
	var all []resident
	for _, pid := range parsePIDs("/proc") {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err != nil || ns != space {
			continue
		}
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		state, _, _ := strings.Cut(status(strconv.Itoa(pid), "State:"), " ")
		all = append(all, resident{
			pid, state,
			strings.ReplaceAll(strings.Trim(string(words), "\x00"), "\x00", " "),
		})
	}
	return all
}

// agents returns the pids of the agents in a container.
func (b *testContainer) agents(t testing.TB) []int {
	t.Helper()
	var pids []int
	for _, r := range b.residents(t) {
		if strings.HasSuffix(r.command, " serve") {
			pids = append(pids, r.pid)
		}
	}
	return pids
}

// zombies returns the number of zombies.
func (b *testContainer) zombies(t testing.TB) (n int) {
	t.Helper()
	for _, r := range b.residents(t) {
		if r.state == "Z" {
			n++
		}
	}
	return n
}
