package features

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/soakreport"
)

var killedCallPage = soakreport.Page{
	File: "killed-calls.md", Title: "The daemon is killed during a call",
	Text: `SIGKILL ended a process of the daemon when a call was seen from outside to reach a phase, while
other calls were made without a pause; half of the calls ran on the host, half in a container. Each
tool left a process that ignores SIGTERM, has a session of its own and no environment. Then the
daemon was started again. *Interrupted* counts the calls that were killed in the phase and had no
end record before. *Calls* are all of which a client saw the id; each must have exactly one record
of its end. *Survivors* are processes of these calls, by the list of all processes, 20 seconds after
the kill; *gone* is when the last one was gone. *Damage* counts the starts after which SQLite's
check found something, and the verification of the audit log after all kills of a phase.`,
	Target:  "no call without exactly one end, no survivor, no damage",
	Columns: []string{"phase", "kills", "interrupted", "calls", "not one end", "survivors", "damage", "gone"},
	Key:     1, Setup: func() string { return "a container of the busybox image" },
}

// killedCalls is what killedCallPage reports of one phase.
type killedCalls struct {
	kills, interrupted, calls, notOneEnd, survivors, damage int

	gone soakreport.Series
}

func (c *killedCalls) cells() []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(c.kills), soakreport.Value(c.interrupted), soakreport.Value(c.calls),
		soakreport.Exactly(c.notOneEnd, 0), soakreport.Exactly(c.survivors, 0),
		soakreport.Exactly(c.damage, 0), soakreport.Value(c.gone.Percentile(100)),
	}
}

// callPhases are the phases of a call at which the daemon is killed, and how one is awaited.
var callPhases = []struct {
	name  string
	await func(*victim)
}{
	{"accepted", func(v *victim) { v.awaitEvent(`"phase":"accepted"`) }},
	{"begun", func(v *victim) { v.awaitRow("1") }},
	{"routed", func(v *victim) { v.awaitRow("1"); v.delay() }},
	{"spawned", func(v *victim) { v.awaitProcess() }},
	{"first byte", func(v *victim) { v.awaitEvent(`"event":"stdout"`) }},
	{"exited", func(v *victim) { v.awaitExit() }},
	{"ended", func(v *victim) { v.release(); v.awaitRow("ended_seq IS NOT NULL") }},
	{"replied", func(v *victim) { v.release(); v.awaitEvent(`"event":"end"`) }},
}

// A daemon that is killed in any phase of a call has exactly one end of each accepted call after
// its next start, no process of these calls is left, and the log verifies (AU-03, AU-06, EX-09).
func TestSoakDaemonKilledDuringCalls(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"work/x": ""})
	box := plainContainer(t, "--volume", root+"/work:"+root+"/work")
	writeFiles(t, root, map[string]string{"config.yaml": fmt.Sprintf(
		"containers: {box: {id: %s}}\nhost: {roots: [%s/work]}\nlimits: {grace: 300ms}\n", box, root)})
	k := &callKiller{daemonProcess: daemonProcess{t: t, root: root}}
	k.start()
	defer k.kill()
	var err error
	if k.log, err = sql.Open("sqlite3", "file:"+root+"/state/audit.db?mode=ro&_busy_timeout=5000"); err != nil {
		t.Fatal(err)
	}
	defer k.log.Close()
	interrupted := 0
	for _, phase := range callPhases {
		t.Run(phase.name, func(t *testing.T) {
			k.t, k.count = t, &killedCalls{}
			killedCallPage.Row(t, []string{phase.name}, k.count.cells)
			k.random = soakreport.Rand(t).Int64N
			for n := range soakreport.Count(50, 5) {
				k.killDuringCall(n%2 == 1, phase.await)
			}
			k.verify()
			interrupted += k.count.interrupted
		})
	}
	if interrupted == 0 {
		t.Error("no call was killed before its end: the test shows nothing")
	}
}

// callKiller kills the daemon during calls.
type callKiller struct {
	daemonProcess
	log    *sql.DB // the audit log, read-only
	count  *killedCalls
	random func(int64) int64
	rounds int

	mu  sync.Mutex
	ids map[string]bool // of the calls that clients saw since the last start
}

func (k *callKiller) saw(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids[id] = true
}

// killDuringCall makes a call among others, kills the daemon when await returns, starts it again
// and checks what is left.
func (k *callKiller) killDuringCall(inContainer bool, await func(*victim)) {
	k.t.Helper()
	k.rounds++
	k.ids = map[string]bool{}
	v := &victim{callKiller: k, marker: fmt.Sprintf("dray-victim-%d-%d", os.Getpid(), k.rounds)}
	v.events = make(chan string, 100)
	for _, name := range []string{v.path("gate"), v.path("never")} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	var clients sync.WaitGroup
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	for range 4 {
		clients.Go(func() { k.load(ctx) })
	}
	clients.Go(func() { v.run(ctx, inContainer) })
	await(v)
	k.kill()
	killed := time.Now()
	cancel()
	clients.Wait()
	k.start()
	k.count.kills++
	k.checkRows(v)
	k.checkProcesses(v, killed)
}

// load makes one call on the host after the other, until the daemon is gone.
func (k *callKiller) load(ctx context.Context) {
	body := map[string]any{
		"tool": "shell", "environment": "host", "cwd": k.root + "/work",
		"input": map[string]any{"command": "echo x"},
	}
	for k.stream(ctx, body, func(string) {}) == nil {
	}
}

// stream makes a call and passes each line of its events on. It returns an error if the stream
// breaks off.
func (k *callKiller) stream(ctx context.Context, body map[string]any, line func(string)) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dray/v1/invocations",
		bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/x-ndjson")
	client := socketClient(k.root + "/state/dray.sock")
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	last := ""
	for lines.Scan() {
		last = lines.Text()
		var ev struct{ ID string }
		if json.Unmarshal(lines.Bytes(), &ev) == nil && ev.ID != "" {
			k.saw(ev.ID)
		}
		line(last)
	}
	if !strings.Contains(last, `"event":"end"`) {
		return errors.Join(io.ErrUnexpectedEOF, lines.Err())
	}
	return nil
}

// query reads one value of the audit log.
func (k *callKiller) query(value any, query string, args ...any) error {
	return k.log.QueryRowContext(k.t.Context(), query, args...).Scan(value)
}

// checkRows checks that every call that a client saw has one end, and that the file is whole.
func (k *callKiller) checkRows(v *victim) {
	k.t.Helper()
	var reason sql.NullString
	err := k.query(&reason, "SELECT reason FROM invocations WHERE session_id = ?", v.marker)
	if err == nil && reason.String == "interrupted" {
		k.count.interrupted++
		k.checkSurvivors(v)
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		k.t.Error(err)
	}
	for id := range k.ids {
		k.count.calls++
		var ends int
		err := k.query(&ends, `SELECT count(*) FROM invocations JOIN events ON invocation = id
			WHERE id = ? AND reason IS NOT NULL AND kind IN ('ended', 'interrupted')`, id)
		if err != nil || ends != 1 {
			k.count.notOneEnd++
			k.t.Errorf("%s has %d ends (%v)", id, ends, err)
		}
	}
	var running int
	var check string
	err = errors.Join(k.query(&check, "PRAGMA quick_check"),
		k.query(&running, "SELECT count(*) FROM invocations WHERE status = 'running'"))
	if err != nil || check != "ok" || running > 0 {
		k.count.damage++
		k.t.Errorf("quick_check: %s, %d calls without an end, %v", check, running, err)
	}
}

// verify verifies the audit log.
func (k *callKiller) verify() {
	k.t.Helper()
	report, err := audit.Verify(k.t.Context(), audit.VerifyOptions{
		Path: k.root + "/state/audit.db", CapturesDir: k.root + "/state/captures",
	})
	if err != nil || !report.OK {
		k.count.damage++
		k.t.Errorf("verification: %+v, %v", report.Findings, err)
	}
}

// checkSurvivors checks that the row of an interrupted call says that its survivors are unknown, or
// which there are: the daemon that could prove more is gone.
func (k *callKiller) checkSurvivors(v *victim) {
	k.t.Helper()
	var survivors sql.NullString
	err := k.query(&survivors, `SELECT json_type(body, '$.metadata.kill.survivors') FROM invocations i
		JOIN events e ON e.seq = i.ended_seq WHERE session_id = ?`, v.marker)
	if err != nil || survivors.String != "null" {
		k.t.Errorf("the survivors are %q (%v)", survivors.String, err)
	}
}

// checkProcesses waits until no process of the calls is left, at most 20 seconds.
func (k *callKiller) checkProcesses(v *victim, killed time.Time) {
	k.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := v.processes(true)
		if len(left) == 0 {
			k.count.gone.Add(time.Since(killed))
			return
		}
		if time.Since(killed) > 20*time.Second {
			k.count.survivors += len(left)
			k.t.Errorf("processes of the calls are left: %v", left)
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		<-tick.C
	}
}

// victim is the call during which the daemon is killed.
type victim struct {
	*callKiller
	marker string      // in the arguments of all its processes
	events chan string // lines of its stream
}

func (v *victim) path(name string) string { return v.root + "/work/" + v.marker + "." + name }

// victimScript leaves a process that ignores TERM, in a session of its own, without environment. It
// prints a line and exits when the gate is opened.
const victimScript = `(setsid env -i /bin/sh -c 'trap "" TERM; read x <"$0"' "$1" "$2" leftover &)
echo ready; read x <"$0"; exit 0`

// run makes the call. Its events are the lines of its stream.
func (v *victim) run(ctx context.Context, inContainer bool) {
	body := map[string]any{
		"tool": "exec", "environment": "host", "cwd": v.root + "/work",
		"input": map[string]any{
			"argv": []string{"/bin/sh", "-c", victimScript, v.path("gate"), v.path("never"), v.marker},
		},
		"context": map[string]any{"session_id": v.marker},
	}
	if inContainer {
		body["environment"], body["container"] = "container", "box"
	}
	defer close(v.events)
	_ = v.stream(ctx, body, func(line string) { v.events <- line }) // it breaks off
}

// awaitEvent waits until the call has an event that contains text.
func (v *victim) awaitEvent(text string) {
	v.t.Helper()
	for line := range v.events {
		if strings.Contains(line, text) {
			return
		}
	}
	v.t.Fatalf("the call has no event %s", text)
}

// poll calls done again and again until it returns true.
func (v *victim) poll(what string, done func() bool) {
	v.t.Helper()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); !done(); {
		select {
		case <-tick.C:
		case <-late:
			v.t.Fatalf("the call has no %s", what)
		}
	}
}

// awaitRow waits until the call's row meets a condition.
func (v *victim) awaitRow(condition string) {
	v.t.Helper()
	v.poll("row", func() bool {
		var n int
		err := v.query(&n, "SELECT count(*) FROM invocations WHERE session_id = ? AND "+condition, v.marker)
		return err == nil && n > 0
	})
}

// delay waits up to 5 ms, the time in which most calls start their process.
func (v *victim) delay() {
	timer := time.NewTimer(time.Duration(v.random(int64(5 * time.Millisecond))))
	defer timer.Stop()
	<-timer.C
}

func (v *victim) awaitProcess() {
	v.t.Helper()
	v.poll("process", func() bool { return len(v.processes(false)) > 0 })
}

// release opens the gate, so that the tool exits.
func (v *victim) release() {
	v.t.Helper()
	v.awaitEvent(`"event":"stdout"`)
	openGate(v.t, v.path("gate"))
}

// awaitExit waits until the tool has exited.
func (v *victim) awaitExit() {
	v.t.Helper()
	v.awaitEvent(`"event":"stdout"`)
	tool, err := unix.PidfdOpen(v.leader(), 0)
	if err != nil {
		v.t.Fatal(err)
	}
	defer unix.Close(tool)
	openGate(v.t, v.path("gate"))
	fds := []unix.PollFd{{Fd: int32(tool), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 30_000)
		if n == 1 {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			v.t.Fatalf("the tool does not exit: %v", err)
		}
	}
}

// leader returns the pid of the tool itself.
func (v *victim) leader() int {
	v.t.Helper()
	for _, pid := range v.processes(false) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !strings.Contains(string(args), "leftover\x00") || strings.Contains(string(args), "echo ready") {
			return pid
		}
	}
	v.t.Fatal("the tool does not run")
	return 0
}

// processes returns the processes that have the marker in their arguments; with all also those with
// the id of any call of this round in their environment.
func (v *victim) processes(all bool) []int {
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(dir + "/cmdline")
		if strings.Contains(string(args), v.marker) || all && v.belongs(dir) {
			found = append(found, pid)
		}
	}
	return found
}

// belongs reports whether the environment of a process has the id of a call.
func (v *victim) belongs(dir string) bool {
	env, _ := os.ReadFile(dir + "/environ")
	for variable := range strings.SplitSeq(string(env), "\x00") {
		if id, ok := strings.CutPrefix(variable, "DRAY_CALL_ID="); ok && v.ids[id] {
			return true
		}
	}
	return false
}
