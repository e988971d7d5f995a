package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Options of an engine.
type Options struct {
	// Images to load from the machine's engine; nil means both test images, by their tag latest.
	Images []string
	// LiveRestore lets containers live on while the engine is down.
	LiveRestore bool
	// RemapUsers gives containers a user namespace: their root is RemappedRoot outside.
	RemapUsers bool
	// TCP has the engine listen on a port of the loopback device too, without any protection.
	TCP bool
	// Group is a group that may use the socket besides root; zero is none.
	Group int
}

// RemappedRoot is the user that root in a container is outside where Options.RemapUsers is set.
const RemappedRoot = 100000

const (
	// prefix begins the names of the engines' folders; what follows it names the bridge too.
	prefix = "dray-engine-"
	// patience bounds the start and the end of an engine.
	patience = time.Minute
	poll     = 20 * time.Millisecond
)

// Engine is an engine of one test.
type Engine struct {
	dir  string
	opts Options
	tcp  string
	lock *os.File

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is over and waited for
}

// Start starts an engine that ends with the test. Where none can be had the test is skipped with
// the gap's name.
func Start(tb testing.TB, opts Options) *Engine {
	tb.Helper()
	requireHost(tb)
	sweep(tb)
	// it has to outlive the test where its end is cut off, and be found
	dir, err := os.MkdirTemp("", prefix) //nolint:usetesting
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{dir: dir, opts: opts}
	tb.Cleanup(func() { e.close(tb) })
	if err := errors.Join(e.lockDir(), e.configure(tb), e.addBridge()); err != nil {
		tb.Fatal(err)
	}
	e.StartAgain(tb)
	if opts.Images == nil {
		opts.Images = []string{"dray-test/debian:latest", "dray-test/busybox:latest"}
	}
	e.load(tb, opts.Images)
	return e
}

// SkipMissing skips a test that this machine gives no place for. The summary of the tests names
// what was not tested.
func SkipMissing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf("gap: "+format, args...)
}

func requireHost(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts an engine of its own")
	}
	if os.Geteuid() != 0 {
		SkipMissing(tb, "only root can start an engine for a test")
	}
	for _, program := range []string{"dockerd", "ip", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			SkipMissing(tb, "no engine can be started for a test: %v", err)
		}
	}
}

// Host is the engine's address, as DOCKER_HOST has it.
func (e *Engine) Host() string { return "unix://" + e.Socket() }

// Socket is the path of the engine's socket.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "docker.sock") }

// TCP is where the engine listens besides, HOST:PORT; empty without Options.TCP.
func (e *Engine) TCP() string { return e.tcp }

// lockDir locks the folder. The lock appears at its name with its holder, so that nobody takes a
// new folder for a left one.
func (e *Engine) lockDir() error {
	next := filepath.Join(e.dir, "lock.new")
	lock, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	e.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("locking the engine's folder: %w", err)
	}
	// its socket is for others too
	return errors.Join(os.Chmod(e.dir, 0o755), os.Rename(next, lockOf(e.dir))) //nolint:gosec
}

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// configure writes the configuration. All that an engine would share with another has a place of
// its own: no rule of the machine's firewall is touched.
func (e *Engine) configure(tb testing.TB) error {
	tb.Helper()
	hosts := []string{e.Host()}
	if e.opts.TCP {
		e.tcp = freePort(tb)
		hosts = append(hosts, "tcp://"+e.tcp)
	}
	config := map[string]any{
		"hosts": hosts, "tls": false, "group": fmt.Sprint(e.opts.Group), "live-restore": e.opts.LiveRestore,
		"data-root": e.path("data"), "exec-root": e.path("exec"), "pidfile": e.path("docker.pid"),
		"bridge": bridgeOf(e.dir), "iptables": false, "ip-masq": false, "ip-forward": false, "userland-proxy": false,
	}
	if e.opts.RemapUsers {
		remap, err := e.writeSubIDs()
		if err != nil {
			return err
		}
		config["userns-remap"] = remap
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(e.path("config.json"), text, 0o600)
}

func (e *Engine) path(name string) string { return filepath.Join(e.dir, name) }

// writeSubIDs writes the ranges of ids that containers get. The engine sees them as /etc/subuid and
// /etc/subgid, and nobody else does.
func (e *Engine) writeSubIDs() (remap string, err error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return "", err
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		return "", err
	}
	err = errors.Join(
		os.WriteFile(e.path("subuid"), fmt.Appendf(nil, "%s:%d:65536\n", u.Username, RemappedRoot),
			0o600),
		os.WriteFile(e.path("subgid"), fmt.Appendf(nil, "%s:%d:65536\n%s:%[2]d:65536\n", u.Username,
			RemappedRoot, g.Name), 0o600),
	)
	return u.Username + ":" + g.Name, err
}

func freePort(tb testing.TB) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// bridgeOf names the bridge of the engine in a folder: short, as the kernel wants it.
func bridgeOf(dir string) string {
	name := "dray" + strings.TrimPrefix(filepath.Base(dir), prefix)
	return name[:min(len(name), 15)]
}

func (e *Engine) addBridge() error {
	return run("ip", "link", "add", bridgeOf(e.dir), "type", "bridge")
}

func run(name string, args ...string) error {
	// short, and of a fixed name
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil { //nolint:noctx,gosec
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
