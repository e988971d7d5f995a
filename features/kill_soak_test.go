package features

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/soakreport"
)

var killedSyncPage = soakreport.Page{
	File: "killed-syncs.md", Title: "The daemon is killed during a sync",
	Text: `Each time a process of the daemon fetched a tree of 301 files from a container, and SIGKILL
ended it at a random moment. Then the daemon was started again. *In the sync* counts the kills
before the response had arrived. *New* counts the times when every file was of the tree that was
being fetched, *old* when every file was of the tree before, *mixed* all others, and rows of the
audit log that do not list exactly the changed files; *left* other entries in the sandbox root.`,
	Target:  "nothing is mixed, nothing is left",
	Columns: []string{"environment", "kills", "in the sync", "new", "old", "mixed", "left"},
	Key:     1, Setup: func() string { return "a container of the busybox image" },
}

// syncKills is what killedSyncPage reports.
type syncKills struct{ kills, during, newTrees, oldTrees, mixed, left int }

func (c *syncKills) cells() []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(c.kills), soakreport.Value(c.during), soakreport.Value(c.newTrees),
		soakreport.Value(c.oldTrees), soakreport.Exactly(c.mixed, 0), soakreport.Exactly(c.left, 0),
	}
}

// A daemon that is killed during a sync leaves the old or the new tree after its next start, and
// nothing else in the sandbox root (SY-06). The row of the sync lists what it changed (AU-11).
func TestSoakDaemonKilledDuringSync(t *testing.T) {
	needsEngine(t)
	var count syncKills
	killedSyncPage.Row(t, []string{"container"}, count.cells)
	r := soakreport.Rand(t)
	root := newDir(t)
	if err := os.Mkdir(root+"/results", 0o700); err != nil {
		t.Fatal(err)
	}
	s := &killedSyncs{
		daemonProcess: daemonProcess{t: t, root: root}, box: plainContainer(t), count: &count,
	}
	writeFiles(t, root, map[string]string{"config.yaml": fmt.Sprintf(
		"containers: {box: {id: %s}}\nsandbox: {root: %s/results}\n", s.box, root)})
	s.start()
	defer s.kill()
	s.write(0)
	begun := time.Now()
	if err := s.sync(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.took = time.Since(begun)
	for version := range soakreport.Count(100, 4) {
		s.write(version + 1)
		s.killDuringSync(r, version+1)
		s.start()
		s.check(version + 1)
		s.checkRow(version + 1)
	}
	if count.during == 0 {
		t.Error("no kill came before the response: the test shows nothing")
	}
}

type killedSyncs struct {
	daemonProcess
	box     string
	count   *syncKills
	took    time.Duration // of a sync
	current int           // the version in the sandbox root
}

// daemonProcess is a daemon in a process of its own, with root/config.yaml and root/state.
type daemonProcess struct {
	t      *testing.T
	root   string
	daemon *exec.Cmd
}

// start starts the daemon and waits until it responds.
func (s *daemonProcess) start() {
	s.t.Helper()
	var log bytes.Buffer
	s.daemon = exec.Command("/proc/self/exe", "serve", "--state", s.root+"/state", "--config",
		s.root+"/config.yaml")
	s.daemon.Stderr = &log
	s.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.daemon.Start(); err != nil {
		s.t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		resp, err := s.request(s.t.Context(), http.MethodGet, "/healthz", nil)
		if err == nil && resp == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			s.kill()
			s.t.Fatalf("the daemon does not start: %v: %s", err, log.String())
		}
	}
}

func (s *daemonProcess) kill() {
	_ = s.daemon.Process.Kill()
	_ = s.daemon.Wait() // it was killed
}

func (s *daemonProcess) request(ctx context.Context, method, path string, body any) (int, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://dray"+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := socketClient(s.root + "/state/dray.sock")
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (s *killedSyncs) sync(ctx context.Context, version int) error {
	body := map[string]any{
		"container": "box", "paths": []string{"/tmp/tree"},
		"context": map[string]any{"session_id": fmt.Sprint(version)},
	}
	status, err := s.request(ctx, http.MethodPost, "/v1/sync", body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

// write writes the tree of a version in the container: each line of each file is its number.
func (s *killedSyncs) write(version int) {
	s.t.Helper()
	script := fmt.Sprintf(`mkdir -p /tmp/tree/sub && cd /tmp/tree && yes %d | head -n 500000 >large &&
		for i in $(seq 150); do echo %[1]d >$i; echo %[1]d >sub/$i; done`, version)
	if _, err := docker(s.t.Context(), "exec", s.box, "sh", "-ec", script); err != nil {
		s.t.Fatal(err)
	}
}

// killDuringSync starts a sync and kills the daemon while it runs.
func (s *killedSyncs) killDuringSync(r *rand.Rand, version int) {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.sync(s.t.Context(), version) }()
	delay := time.NewTimer(time.Duration(r.Int64N(int64(s.took) * 5 / 4)))
	defer delay.Stop()
	<-delay.C
	s.kill()
	if err := <-ended; err != nil {
		s.count.during++
	}
	s.count.kills++
}

// check compares every file in the sandbox root with the version before and the given one.
func (s *killedSyncs) check(version int) {
	s.t.Helper()
	found := map[string]int{} // files by content
	err := filepath.WalkDir(s.root+"/results", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".dray-") {
			s.count.left++
			s.t.Errorf("%s is left", path)
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		line, _, _ := strings.Cut(string(text), "\n")
		if !strings.Contains(path, "/tree/") ||
			strings.Repeat(line+"\n", strings.Count(string(text), "\n")) != string(text) {
			s.count.left++
			s.t.Errorf("%s should not be there, or is torn: %.40q", path, text)
		}
		found[line]++
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	switch {
	case found[fmt.Sprint(version)] == 301 && len(found) == 1:
		s.count.newTrees++
		s.current = version
	case found[fmt.Sprint(s.current)] == 301 && len(found) == 1:
		s.count.oldTrees++
	default:
		s.count.mixed++
		s.t.Errorf("files by version, %d or %d expected: %v", s.current, version, found)
	}
}

// checkRow checks that the row of a sync lists every file that it has changed, or none.
func (s *killedSyncs) checkRow(version int) {
	s.t.Helper()
	log, err := sql.Open("sqlite3", "file:"+s.root+"/state/audit.db?mode=ro&_busy_timeout=5000")
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	want, listed := 0, 0
	if s.current == version {
		want = 301
	}
	err = log.QueryRowContext(s.t.Context(), `SELECT count(path) FROM invocations
		LEFT JOIN changed_files ON changed_files.seq = ended_seq WHERE session_id = ?`, fmt.Sprint(version)).
		Scan(&listed)
	if err != nil || listed != want {
		s.count.mixed++
		s.t.Errorf("the row of version %d lists %d changed files, %d were changed (%v)", version, listed,
			want, err)
	}
}
