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

// Options are the parameters of an engine.
type Options struct {
	// Images are loaded from the machine's engine; nil is the tag latest of both test images.
	Images []string
	// Podman starts Podman instead of dockerd. The options below are of dockerd.
	Podman bool
	// LiveRestore keeps containers running while the engine is stopped.
	LiveRestore bool
	// RemapUsers runs containers in a user namespace: their root is RemappedRoot outside.
	RemapUsers bool
	// TCP makes the engine also listen on a port of the loopback device, without authentication.
	TCP bool
	// Group may use the socket, as root may; zero is none.
	Group int
}

// RemappedRoot is the user id outside of root in a container, with Options.RemapUsers.
const RemappedRoot = 100000

const (
	// prefix starts the names of the engines' directories. The rest is also the name of the bridge.
	prefix = "dray-engine-"
	// startTimeout bounds the start of an engine, and its exit.
	startTimeout = time.Minute
	pollInterval = 20 * time.Millisecond
)

// Engine is an engine of one test.
type Engine struct {
	dir  string
	opts Options
	tcp  string
	lock *os.File

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has exited
}

// Start starts an engine that ends with the test. It skips the test if this machine can start none.
func Start(tb testing.TB, opts Options) *Engine {
	tb.Helper()
	requireHost(tb, opts.programs()...)
	sweep(tb)
	dir, err := os.MkdirTemp("", prefix) //nolint:usetesting // if the test is killed, the next one must find the directory
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{dir: dir, opts: opts}
	tb.Cleanup(func() { e.close(tb) })
	if err := errors.Join(e.lockDir(), e.configure(tb)); err != nil {
		tb.Fatal(err)
	}
	e.StartAgain(tb)
	if opts.Images == nil {
		opts.Images = []string{"dray-test/debian:latest", "dray-test/busybox:latest"}
	}
	e.load(tb, opts.Images)
	return e
}

// SkipMissing skips a test that cannot run on this machine. The summary of the tests names what was
// not tested.
func SkipMissing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf("gap: "+format, args...)
}

func requireHost(tb testing.TB, programs ...string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts its own engine")
	}
	if os.Geteuid() != 0 {
		SkipMissing(tb, "only root can start an engine for a test")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			SkipMissing(tb, "no engine can be started for a test: %v", err)
		}
	}
}

// programs returns the programs that an engine needs.
func (o Options) programs() []string {
	if o.Podman {
		return []string{"podman", "conmon", "runc"}
	}
	return []string{"dockerd", "ip", "unshare"}
}

// Host returns the engine's address, as in DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + e.Socket() }

// Socket returns the path of the engine's socket.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "docker.sock") }

// TCP returns the HOST:PORT on which the engine also listens; empty without Options.TCP.
func (e *Engine) TCP() string { return e.tcp }

// lockDir locks the directory. The lock file gets its name when it is locked, so that no other test
// removes a new directory as a leftover.
func (e *Engine) lockDir() error {
	next := filepath.Join(e.dir, "lock.new")
	lock, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	e.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock the engine's directory: %w", err)
	}
	return errors.Join(os.Chmod(e.dir, 0o755), os.Rename(next, lockOf(e.dir))) //nolint:gosec // other users may use the socket
}

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// configure writes the configuration. The engine shares no path and no device with another one, and
// does not change the machine's firewall.
func (e *Engine) configure(tb testing.TB) error {
	tb.Helper()
	if e.opts.Podman {
		return e.configurePodman()
	}
	hosts := []string{e.Host()}
	if e.opts.TCP {
		e.tcp = freePort(tb)
		hosts = append(hosts, "tcp://"+e.tcp)
	}
	config := map[string]any{
		"hosts": hosts, "tls": false, "group": fmt.Sprint(e.opts.Group),
		"live-restore": e.opts.LiveRestore,
		"data-root":    e.path("data"), "exec-root": e.path("exec"), "pidfile": e.path("docker.pid"),
		"bridge": bridgeOf(e.dir), "iptables": false, "ip-masq": false, "ip-forward": false,
		"userland-proxy": false,
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
	return errors.Join(os.WriteFile(e.path("config.json"), text, 0o600), e.addBridge())
}

func (e *Engine) path(name string) string { return filepath.Join(e.dir, name) }

// writeSubIDs writes the ranges of ids that containers get. Only the engine sees them as
// /etc/subuid and /etc/subgid.
func (e *Engine) writeSubIDs() (remap string, err error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return "", err
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		return "", err
	}
	uids := fmt.Appendf(nil, "%s:%d:65536\n", u.Username, RemappedRoot)
	gids := fmt.Appendf(uids, "%s:%d:65536\n", g.Name, RemappedRoot)
	err = errors.Join(os.WriteFile(e.path("subuid"), uids, 0o600),
		os.WriteFile(e.path("subgid"), gids, 0o600))
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

// bridgeOf returns the name of an engine's bridge, at most 15 bytes as the kernel demands.
func bridgeOf(dir string) string {
	name := "dray" + strings.TrimPrefix(filepath.Base(dir), prefix)
	return name[:min(len(name), 15)]
}

func (e *Engine) addBridge() error {
	return run("ip", "link", "add", bridgeOf(e.dir), "type", "bridge")
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil { //nolint:noctx,gosec // it ends soon, and the name is constant
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
