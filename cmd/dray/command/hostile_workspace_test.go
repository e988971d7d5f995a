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
	"slices"
	"strings"
	"sync"
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

// hostileDaemon is a daemon with 8 running and 8 queued calls at most.
type hostileDaemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	http *http.Client
}

const hostileDrain = time.Second

func startHostileDaemon(t *testing.T, cli string) hostileDaemon {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	settings := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("limits: {concurrent: 8, queue: 8, drain: %s}\n", hostileDrain)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Args = []string{"dray", "serve", "--state", state, "--config", settings}
	cmd.Env = append(os.Environ(), wholeDaemon+"=1", "DRAY_DEVCONTAINER_CLI="+cli)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	socket := filepath.Join(state, "dray.sock")
	d := hostileDaemon{t, cmd, &http.Client{Transport: &http.Transport{
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

func (d hostileDaemon) post(ctx context.Context, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dray"+path,
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
// answered throughout 100 calls on them, and the daemon ends within its drain time (EX-13).
func TestHostileWorkspacesKeepNoSlots(t *testing.T) {
	image, cli := needEngine(t)
	d := startHostileDaemon(t, cli)
	good, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeContainers(good) })
	text := fmt.Sprintf(`{"image": %q, "updateRemoteUserUID": false}`, image)
	if err := errors.Join(os.Mkdir(good+"/.devcontainer", 0o700),
		os.WriteFile(configOf(good), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"trust", "up"} {
		path := "/v1/workspaces/" + strings.ReplaceAll(good, "/", "%2F") + "/" + action
		if out, err := d.post(t.Context(), path, "{}"); err != nil {
			t.Fatalf("%s: %s, %v", action, out, err)
		}
	}
	var dirs []string
	for _, kind := range hostileWorkspaces {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(dir+"/.devcontainer", 0o700), kind.make(t, dir)); err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		dirs = append(dirs, dir)
	}
	hostile := d.callAll(dirs)
	d.measure(good, hostile)
	d.callAll(dirs) // some are open at the signal
	begun := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	took := time.Since(begun)
	t.Logf("SIGTERM with a drain of %v: ended after %v", hostileDrain, took)
	if took > hostileDrain+20*time.Second { // generous: the machine may be busy
		t.Errorf("the daemon ended after %v", took)
	}
}

// callAll makes 100 calls at once. The result is closed when all were answered.
func (d hostileDaemon) callAll(dirs []string) <-chan struct{} {
	done := make(chan struct{})
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), time.Minute)
			defer cancel()
			status, err := d.call(ctx, dirs[i%len(dirs)])
			kind := hostileWorkspaces[i%len(dirs)].name
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				d.t.Errorf("%s: no answer within a minute", kind)
			case strings.Contains(status, "succeeded"):
				d.t.Errorf("%s: the call succeeded", kind)
			}
		})
	}
	go func() {
		calls.Wait()
		close(done)
	}()
	d.t.Cleanup(func() { <-done })
	return done
}

// measure calls the good workspace until the hostile calls were answered, and once more. A call
// that finds all slots taken is answered at once and repeated.
func (d hostileDaemon) measure(good string, hostile <-chan struct{}) {
	d.t.Helper()
	var took []time.Duration
	for last := false; !last; {
		select {
		case <-hostile:
			last = true
		default:
		}
		begun := time.Now()
		for {
			ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
			status, err := d.call(ctx, good)
			cancel()
			if err != nil {
				d.t.Fatalf("the good workspace is not answered: %v", err)
			}
			if strings.HasPrefix(status, "succeeded") {
				break
			}
			if !strings.Contains(status, "busy") || time.Since(begun) > time.Minute {
				d.t.Fatalf("a call in the good workspace: %s after %v", status, time.Since(begun))
			}
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	d.t.Logf("%d calls of the good workspace beside 100 hostile ones: median %v, longest %v", len(took),
		took[len(took)/2], took[len(took)-1])
	if longest := took[len(took)-1]; longest > 20*time.Second {
		d.t.Errorf("the good workspace waited %v", longest)
	}
}
