package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python/assets"
)

// Confinement is what confines a Deno process besides its own permissions.
type Confinement struct {
	// Bwrap is the absolute path of bubblewrap, in which Deno runs. It is empty if Deno runs without.
	Bwrap string
	// Reason says why Deno runs without bubblewrap.
	Reason string

	libraries []string // that Deno loads, as absolute paths
}

// bwrapTimeout bounds the self-test of bubblewrap.
const bwrapTimeout = 10 * time.Second

// The names in the mount namespace of Deno, besides those of its shared libraries.
const (
	bwrapDeno = "/deno"
	bwrapWork = "/dray" // the working directory
)

// NewConfinement tests whether Deno runs in bubblewrap here. It runs `deno --version` with the
// namespaces, capabilities and root directory of a worker. bwrap is the absolute path of
// bubblewrap, empty if it is not installed. start starts a process ([process.Pool.Start]).
// NewConfinement fails only if ctx ends.
func NewConfinement(ctx context.Context, start startFunc, bwrap, deno string,
) (Confinement, error) {
	if bwrap == "" {
		return Confinement{Reason: "bubblewrap (bwrap) is not installed"}, nil
	}
	test, cancel := context.WithTimeout(ctx, bwrapTimeout)
	defer cancel()
	c := Confinement{Bwrap: bwrap}
	err := c.test(test, start, deno)
	if ctx.Err() != nil {
		return Confinement{}, context.Cause(ctx)
	}
	if err != nil {
		return Confinement{Reason: fmt.Sprintf("%s does not work here: %v", bwrap, err)}, nil
	}
	return c, nil
}

type startFunc func(ctx context.Context, spec process.Spec) (*process.Process, error)

// test finds the libraries of Deno, and runs it once.
func (c *Confinement) test(ctx context.Context, start startFunc, deno string) error {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return errors.New("the kernel does not list children of processes (CONFIG_PROC_CHILDREN)")
	}
	// The dynamic linker of glibc then prints what it would load, and does not run the program.
	out, err := output(ctx, start, process.Spec{
		Argv: []string{deno, "--version"}, Env: []string{"LD_TRACE_LOADED_OBJECTS=1"}, Dir: "/",
	})
	if err == nil {
		c.libraries, err = librariesIn(out)
	}
	if err != nil {
		return fmt.Errorf("find the libraries of Deno: %w", err)
	}
	out, err = output(ctx, start, process.Spec{
		Argv: append(c.argv(deno), bwrapDeno, "--version"), Env: denoEnv(), Dir: "/",
	})
	if err == nil && !strings.HasPrefix(out, "deno ") {
		err = fmt.Errorf("deno printed %q", out)
	}
	return err
}

// argv returns the command line of bubblewrap up to the program, with mounts besides Deno and its
// libraries: pairs of a path on the host and a name in the working directory. All mounts are
// read-only, and so is the root directory, an empty tmpfs. There is neither /sys nor /dev, and
// /proc has only the link by which Deno finds its program.
func (c *Confinement) argv(deno string, mounts ...string) []string {
	argv := []string{
		c.Bwrap, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
		"--unshare-cgroup", "--hostname", "dray", "--new-session", "--die-with-parent",
		// Deno is the only process in its pid namespace, and the only child of bubblewrap.
		"--as-pid-1", "--cap-drop", "ALL", "--ro-bind", deno, bwrapDeno,
		"--symlink", bwrapDeno, "/proc/self/exe", "--dir", bwrapWork,
	}
	for _, name := range c.libraries {
		argv = append(argv, "--ro-bind", name, name)
	}
	for i := 0; i < len(mounts); i += 2 {
		argv = append(argv, "--ro-bind", mounts[i], filepath.Join(bwrapWork, mounts[i+1]))
	}
	return append(argv, "--chdir", bwrapWork, "--remount-ro", "/", "--")
}

// library matches a line of the dynamic linker: a name and its path, or the path of the linker.
var library = regexp.MustCompile(`^\t(?:.* => )?(/.*) \(0x[0-9a-f]+\)$`)

// librariesIn returns the paths that the dynamic linker has printed.
func librariesIn(text string) (paths []string, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if found := library.FindStringSubmatch(line); found != nil {
			paths = append(paths, found[1])
		} else if strings.HasSuffix(line, "=> not found") {
			return nil, errors.New(strings.TrimSpace(line))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("the dynamic linker printed %q", text)
	}
	return paths, nil
}

// maxTestOutput bounds what is read of a self-test, in bytes.
const maxTestOutput = 64 << 10

// output runs a process to its end and returns the beginning of its stdout.
func output(ctx context.Context, start startFunc, spec process.Spec) (string, error) {
	proc, err := start(ctx, spec)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { proc.Stop(0) })()
	_ = proc.Stdin().Close()
	var stdout, stderr strings.Builder
	var reading sync.WaitGroup
	for from, to := range map[io.Reader]io.Writer{proc.Stdout(): &stdout, proc.Stderr(): &stderr} {
		reading.Go(func() {
			_, _ = io.CopyN(to, from, maxTestOutput)
			_, _ = io.Copy(io.Discard, from)
		})
	}
	exit, err := process.Adapt(proc).Wait()
	reading.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", err
	case exit.Code != 0 || exit.Signal != 0:
		first, _, _ := strings.Cut(strings.ToValidUTF8(stderr.String(), "?"), "\n")
		return "", errors.New(cmp.Or(first, describeExit(exit)))
	}
	return stdout.String(), nil
}

// confinementCache tests bubblewrap once for each Deno.
type confinementCache struct {
	mu     sync.Mutex
	deno   string // that was tested with the result known
	known  Confinement
	tested bool
}

func (c *confinementCache) get(ctx context.Context, cfg *PyodideConfig, found assets.Assets,
) (Confinement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tested && c.deno == found.Deno {
		return c.known, nil
	}
	known, err := NewConfinement(ctx, cfg.Start, cfg.Bwrap, found.Deno)
	if err != nil {
		return Confinement{}, err
	}
	c.known, c.deno, c.tested = known, found.Deno, true
	if cfg.Log == nil {
		return known, nil
	}
	if known.Bwrap == "" {
		cfg.Log.Warn("python workers run without bubblewrap", zap.String("runtime", RuntimePyodide),
			zap.String("reason", known.Reason))
	} else {
		cfg.Log.Info("python workers run in bubblewrap", zap.String("runtime", RuntimePyodide),
			zap.String("program", known.Bwrap))
	}
	return known, nil
}

// confined returns the pid of the Deno process in the process bwrap, and sets the limits of spec
// for it. It fails unless Deno has namespaces of its own and no capability.
func confined(bwrap int, spec process.Spec) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", bwrap, bwrap))
	if err != nil {
		return 0, fmt.Errorf("find Deno in bubblewrap: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		return 0, fmt.Errorf("find Deno in bubblewrap: its children are %q", children)
	}
	if err := errors.Join(ownNamespaces(pid), noCapabilities(pid)); err != nil {
		return 0, err
	}
	// A supervisor limits the process that it starts, which may have forked before.
	for resource, bytes := range map[int]uint64{
		unix.RLIMIT_DATA: spec.Data, unix.RLIMIT_STACK: spec.Stack,
	} {
		limit := unix.Rlimit{Cur: bytes, Max: bytes}
		if err := unix.Prlimit(pid, resource, &limit, nil); err != nil {
			return 0, fmt.Errorf("limit the memory of Deno in bubblewrap: %w", err)
		}
	}
	return pid, nil
}

// ownNamespaces fails if a process shares a namespace with this one.
func ownNamespaces(pid int) error {
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return fmt.Errorf("compare namespaces: %w", err)
		}
		other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			return fmt.Errorf("compare namespaces: %w", err)
		}
		if own == other {
			return fmt.Errorf("bubblewrap left Deno in the %s namespace of the daemon", name)
		}
	}
	return nil
}

// noCapabilities fails if a process has a capability or could get one.
func noCapabilities(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fmt.Errorf("read the capabilities of Deno: %w", err)
	}
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1",
	} {
		if !strings.Contains(string(status), "\n"+name+":\t"+want+"\n") {
			return fmt.Errorf("%s of Deno in bubblewrap is not %s", name, want)
		}
	}
	return nil
}
