package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/fusetest"
)

// hostileWorkspaces make workspaces whose files block who opens them, or have no end.
var hostileWorkspaces = []struct {
	name string
	make func(t *testing.T, dir string) error
}{
	{"FIFO", func(_ *testing.T, dir string) error { return unix.Mkfifo(configOf(dir), 0o600) }},
	{"kernel log", func(_ *testing.T, dir string) error { return os.Symlink("/proc/kmsg", configOf(dir)) }},
	{"zero", func(_ *testing.T, dir string) error { return os.Symlink("/dev/zero", configOf(dir)) }},
	{"terminal", func(_ *testing.T, dir string) error { return os.Symlink("/dev/ptmx", configOf(dir)) }},
	{"socket", func(_ *testing.T, dir string) error {
		return unix.Mknod(configOf(dir), unix.S_IFSOCK|0o600, 0)
	}},
	{"directory", func(_ *testing.T, dir string) error { return os.Mkdir(configOf(dir), 0o700) }},
	{"sparse file", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir), nil, 0o600), os.Truncate(configOf(dir), 2<<30))
	}},
	{"loop of symlinks", func(_ *testing.T, dir string) error {
		return os.Symlink("devcontainer.json", configOf(dir))
	}},
	{"kernel log beside the configuration", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir), []byte(`{"image": "x"}`), 0o600),
			os.Symlink("/proc/kmsg", dir+"/.devcontainer/link"))
	}},
	{"FIFO as Dockerfile", func(_ *testing.T, dir string) error {
		return errors.Join(
			os.WriteFile(configOf(dir), []byte(`{"build": {"dockerfile": "Dockerfile"}}`), 0o600),
			unix.Mkfifo(dir+"/.devcontainer/Dockerfile", 0o600))
	}},
	{"FIFO as compose file", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir),
			[]byte(`{"dockerComposeFile": "../c.yml", "service": "a"}`), 0o600),
			unix.Mkfifo(dir+"/c.yml", 0o600))
	}},
	{"device that a compose file includes", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir),
			[]byte(`{"dockerComposeFile": "../c.yml", "service": "a"}`), 0o600),
			os.WriteFile(dir+"/c.yml", []byte("include: [/dev/tty, fifo]\n"), 0o600),
			unix.Mkfifo(dir+"/fifo", 0o600))
	}},
	{"FIFO as HEAD", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir), []byte(`{"image": "x"}`), 0o600),
			os.MkdirAll(dir+"/.git/objects", 0o700), os.MkdirAll(dir+"/.git/refs", 0o700),
			unix.Mkfifo(dir+"/.git/HEAD", 0o600))
	}},
	{".git of a FIFO", func(_ *testing.T, dir string) error {
		return errors.Join(os.WriteFile(configOf(dir), []byte(`{"image": "x"}`), 0o600),
			unix.Mkfifo(dir+"/fifo", 0o600), os.WriteFile(dir+"/.git", []byte("gitdir: fifo\n"), 0o600))
	}},
	{"file system that hangs", func(t *testing.T, dir string) error {
		hanging := t.TempDir()
		fusetest.MountHanging(t, hanging)
		return os.Symlink(hanging+"/devcontainer.json", configOf(dir))
	}},
}

func configOf(dir string) string { return dir + "/.devcontainer/devcontainer.json" }

// wholeDaemonProcess is a daemon in a process of its own.
type wholeDaemonProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	state  string
	log    *bytes.Buffer // complete when exited is closed
	exited <-chan struct{}
	http   *http.Client
}

// hostileDaemon is a daemon with 8 running and 8 queued calls at most.
type hostileDaemon struct{ wholeDaemonProcess }

const (
	hostileDrain = time.Second
	// hostileLimit is far above what is expected, less than 2 s: the machine may be busy.
	hostileLimit = 15 * time.Second
)

func startHostileDaemon(t *testing.T, cli string) hostileDaemon {
	t.Helper()
	d := startWholeDaemon(t, cli, fmt.Sprintf("limits: {concurrent: 8, queue: 8, drain: %s}\n",
		hostileDrain))
	return hostileDaemon{d}
}

// startWholeDaemon starts the daemon in a process of its own, with a state directory of its own.
func startWholeDaemon(t *testing.T, cli, settings string) wholeDaemonProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Args = []string{"dray", "serve", "--state", state, "--config", file}
	cmd.Env = append(os.Environ(), wholeDaemon+"=1", "DRAY_DEVCONTAINER_CLI="+cli)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	socket := filepath.Join(state, "dray.sock")
	d := wholeDaemonProcess{t, cmd, state, &log, exited, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
	for giveUp := time.Now().Add(10 * time.Second); ; {
		if _, err := d.post(t.Context(), "/v1/paths", "{}"); err == nil {
			return d
		} else if time.Now().After(giveUp) {
			t.Fatal(err)
		}
	}
}

func (d wholeDaemonProcess) post(ctx context.Context, path, body string) ([]byte, error) {
	return d.do(ctx, http.MethodPost, path, body)
}

func (d wholeDaemonProcess) do(ctx context.Context, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://dray"+path,
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// call runs `true` in a workspace and returns the status of the call, or the code of its error.
func (d hostileDaemon) call(ctx context.Context, workspace string) (string, error) {
	body, err := d.post(ctx, "/v1/invocations",
		fmt.Sprintf(`{"tool": "exec", "input": {"argv": ["true"]}, "workspace": %q}`, workspace))
	var reply struct {
		Status any // a number in a problem
		Code   string
		Error  struct{ Code string }
	}
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(body), &reply)
	}
	return fmt.Sprint(reply.Status, " ", reply.Code, reply.Error.Code), err
}

// Hostile workspaces keep no slots: with 8 running and 8 queued calls, another workspace is
// answered throughout 100 calls on each of them, and the daemon ends within its drain time while
// they are called (EX-13).
func TestHostileWorkspacesKeepNoSlots(t *testing.T) {
	image, cli := needEngine(t)
	d := startHostileDaemon(t, cli)
	good := d.goodWorkspace(image)
	load := d.startLoad()
	d.measure(good, load)
	load.awaitBusy(t) // calls take all places
	load.stopping.Store(true)
	begun := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.exited:
		t.Logf("SIGTERM with a drain of %v: ended after %v", hostileDrain, time.Since(begun))
	case <-time.After(hostileDrain + hostileLimit):
		t.Errorf("the daemon did not end within its drain time and %v", hostileLimit)
	}
}

// goodWorkspace returns a workspace whose container runs.
func (d hostileDaemon) goodWorkspace(image string) string {
	d.t.Helper()
	good, err := filepath.EvalSymlinks(d.t.TempDir())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { removeContainers(good) })
	text := fmt.Sprintf(`{"image": %q, "updateRemoteUserUID": false}`, image)
	if err := errors.Join(os.Mkdir(good+"/.devcontainer", 0o700),
		os.WriteFile(configOf(good), []byte(text), 0o600)); err != nil {
		d.t.Fatal(err)
	}
	path := "/v1/workspaces/" + strings.ReplaceAll(good, "/", "%2F")
	out, err := d.do(d.t.Context(), http.MethodGet, path+"/trust", "")
	var review struct{ Hash string }
	if err := errors.Join(err, json.Unmarshal(out, &review)); err != nil {
		d.t.Fatalf("%s, %v", out, err)
	}
	hash := fmt.Sprintf(`{"hash": %q}`, review.Hash)
	if out, err := d.post(d.t.Context(), path+"/trust", hash); err != nil {
		d.t.Fatalf("%s, %v", out, err)
	}
	if out, err := d.post(d.t.Context(), path+"/up", "{}"); err != nil {
		d.t.Fatalf("%s, %v", out, err)
	}
	return good
}

// hostileLoad calls every hostile workspace again and again, more of them at once than the daemon
// has places.
type hostileLoad struct {
	answered []atomic.Int64 // of each kind, without those that found no place
	busy     atomic.Int64   // calls that found no place
	// places receives a value when a call was answered. A caller that found no place waits for it.
	places   chan struct{}
	stopping atomic.Bool // the daemon may break connections
}

// startLoad starts 8 callers of each hostile workspace, which call until the end of the test.
func (d hostileDaemon) startLoad() *hostileLoad {
	d.t.Helper()
	load := &hostileLoad{
		answered: make([]atomic.Int64, len(hostileWorkspaces)), places: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	var callers sync.WaitGroup
	d.t.Cleanup(func() {
		cancel()
		callers.Wait()
	})
	for i, kind := range hostileWorkspaces {
		dir := d.t.TempDir()
		err := errors.Join(os.Mkdir(dir+"/.devcontainer", 0o700), kind.make(d.t, dir))
		if err != nil {
			d.t.Fatalf("%s: %v", kind.name, err)
		}
		for range 8 {
			callers.Go(func() {
				for ctx.Err() == nil && d.callHostile(ctx, load, i, dir) {
				}
			})
		}
	}
	return load
}

// callHostile makes one call and reports whether the daemon answered it.
func (d hostileDaemon) callHostile(ctx context.Context, load *hostileLoad, kind int, dir string,
) bool {
	limited, cancel := context.WithTimeout(ctx, hostileLimit)
	defer cancel()
	status, err := d.call(limited, dir)
	switch {
	case err != nil:
		if ctx.Err() == nil && !load.stopping.Load() {
			d.t.Errorf("%s: %v", hostileWorkspaces[kind].name, err)
		}
		return false
	case strings.HasPrefix(status, "succeeded"):
		d.t.Errorf("%s: the call succeeded", hostileWorkspaces[kind].name)
	case strings.Contains(status, "busy"):
		load.busy.Add(1)
		select {
		case <-load.places:
		case <-ctx.Done():
		}
	default:
		load.answered[kind].Add(1)
		load.wakeOne()
	}
	return true
}

// wakeOne lets a caller that found no place call again, because another call was answered.
func (l *hostileLoad) wakeOne() {
	select {
	case l.places <- struct{}{}:
	default:
	}
}

// fewest returns the number of answered calls of the kind that has fewest.
func (l *hostileLoad) fewest() int64 {
	n := l.answered[0].Load()
	for i := range l.answered {
		n = min(n, l.answered[i].Load())
	}
	return n
}

// awaitBusy waits until one more call finds no place. After a failure it does not wait.
func (l *hostileLoad) awaitBusy(t *testing.T) {
	t.Helper()
	before := l.busy.Load()
	for begun := time.Now(); l.busy.Load() == before && !t.Failed(); runtime.Gosched() {
		if time.Since(begun) > hostileLimit {
			t.Fatal("the hostile calls do not take all places")
		}
	}
}

// measure calls the good workspace, one call after the other, until each hostile one was answered
// 100 times.
func (d hostileDaemon) measure(good string, load *hostileLoad) {
	d.t.Helper()
	var took []time.Duration
	for n := int64(0); (n < 100 || len(took) < 20) && !d.t.Failed(); n = load.fewest() {
		took = append(took, d.callGood(good))
		load.wakeOne()
	}
	slices.Sort(took)
	var hostile int64
	for i := range load.answered {
		hostile += load.answered[i].Load()
	}
	d.t.Logf("%d calls of the good workspace beside %d hostile ones, %d more found no place: "+
		"median %v, longest %v", len(took), hostile, load.busy.Load(), took[len(took)/2],
		took[len(took)-1])
}

// callGood returns how long a call of the good workspace takes until it succeeds. One that finds no
// place is repeated.
func (d hostileDaemon) callGood(good string) time.Duration {
	d.t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(d.t.Context(), hostileLimit)
	defer cancel()
	for {
		status, err := d.call(ctx, good)
		switch {
		case err == nil && strings.HasPrefix(status, "succeeded"):
			return time.Since(begun)
		case err != nil || !strings.Contains(status, "busy"):
			d.t.Errorf("a call of the good workspace: %s, %v after %v", status, err, time.Since(begun))
			return time.Since(begun)
		}
	}
}
