package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/lexical"
)

func (d *doctor) checkDisks(context.Context) {
	d.checkDisk("state disk", string(d.cfg.State),
		"free some space, or lower limits.captures_disk and limits.captures_keep")
	if root := d.cfg.Sandbox.Root; root != "" {
		d.checkDisk("sandbox disk", root, "free some space, or choose another sandbox.root")
	}
}

func (d *doctor) checkDisk(check, dir, fix string) {
	space, err := diskMarks(d.cfg).Of(dir)
	for ; err != nil && dir != "/"; space, err = diskMarks(d.cfg).Of(dir) {
		dir = filepath.Dir(dir) // it is created later
	}
	message := fmt.Sprintf("%s free at %s", formatBytes(space.Free), dir)
	switch space.Level() {
	case audit.DiskFull:
		d.fail(check, errors.New(message), fix)
	case audit.DiskLow:
		d.warn(check, fix, "%s", message)
	default:
		d.ok(check, "%s", message)
	}
}

func (d *doctor) checkAudit(ctx context.Context) {
	path := d.cfg.State.AuditDB()
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		d.ok("audit log", "%s does not exist yet", path)
		return
	}
	err := audit.Check(ctx, path)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.ok("audit log", "%s, not read to its end in %v", path, doctorTimeout)
	case err != nil:
		d.fail("audit log", err, "check the file and its permissions")
	default:
		d.ok("audit log", "%s", path)
	}
}

func (d *doctor) checkDaemon(ctx context.Context) {
	running, err := locked(filepath.Join(string(d.cfg.State), daemonLock))
	switch {
	case err != nil:
		d.fail("daemon", err, "check the state directory")
		return
	case !running:
		d.ok("daemon", "not running: commands such as dray exec start it")
		return
	}
	c := client.New(d.cfg.Server.Socket, nil)
	defer c.Close()
	c.Version = thisBuild().Version
	c.OnVersionMismatch = func(theirs string) {
		d.warn("daemon", restart, "it has version %s, this program %s", theirs, c.Version)
	}
	c.OnConfig = func(theirs string) {
		switch differ, sources := compareConfigs(configDigest(d.cfg), theirs); {
		case !differ:
		case sources:
			d.warn("daemon", restart, "it was started with other flags or variables than this command")
		default:
			d.warn("daemon", "run `dray reload`",
				"the configuration file has changed since the daemon read it")
		}
	}
	reply, err := c.Status(ctx)
	if err != nil {
		d.fail("daemon", fmt.Errorf("it runs and does not respond: %w", err),
			"wait, or run `dray stop`; see "+filepath.Join(string(d.cfg.State), logName))
		return
	}
	st := reply.Value
	d.ok("daemon", "pid %d on %s, version %s", st.PID, st.Socket, st.Version)
	if st.Audit.Error != nil {
		d.fail("daemon", st.Audit.Error, "")
	}
	if st.Engine.Error != nil {
		d.fail("daemon", fmt.Errorf("its engine: %w", st.Engine.Error), "")
	}
	if engine, err := d.engine(); err == nil {
		defer engine.Close()
		if engine.Host() != st.Engine.Host {
			d.warn("daemon", restart, "it uses the engine at %s, and not the one at %s (selected by %s)",
				st.Engine.Host, engine.Host(), engine.Source())
		}
	}
}

// restart is the fix for a daemon that was started from another environment.
const restart = "run `dray stop`: the next command starts a daemon"

// engine returns the engine that a daemon started now would use.
func (d *doctor) engine() (*docker.Engine, error) {
	return docker.NewEngine(docker.EndpointConfig{
		Host: d.cfg.Engine.Host, Context: d.cfg.Engine.Context,
	}, docker.Options{})
}

func (d *doctor) checkEngine(ctx context.Context) {
	engine, err := d.engine()
	if err != nil {
		return // reported with the configuration
	}
	defer engine.Close()
	parts, err := engine.Components(ctx)
	var name string
	if err == nil {
		name, err = engine.Name(ctx)
	}
	if err != nil {
		d.fail("engine", err, "start the engine")
		return
	}
	where := fmt.Sprintf("%s at %s (selected by %s)", name, engine.Host(), engine.Source())
	if product, version, _ := strings.Cut(name, " "); isOlder(version, oldestEngines[product]) {
		d.warn("engine", "install "+product+" "+oldestEngines[product]+" or later",
			"%s is older than dray supports", where)
	} else {
		d.ok("engine", "%s", where)
	}
	for _, hole := range knownHoles {
		if v := parts[hole.part]; v != "" && hole.affects(v) {
			d.warn("engine", "update "+hole.part+" to "+hole.fixed+" or later; packages of a distribution "+
				"may contain the fix under an older version", "%s %s: %s", hole.part, v, hole.what)
		}
	}
}

// oldestEngines are the oldest supported versions (RT-13).
var oldestEngines = map[string]string{"docker": "20.10", "podman": "4.0"}

// hole is a known way out of a container. Versions from and later, and before fixed, have it.
type hole struct{ part, from, fixed, what string }

// knownHoles are holes of container runtimes with which a container can reach the host. They are
// from the advisories of github.com/opencontainers/runc: GHSA-xr7r-f8xq-vfvv (fixed in 1.1.12), and
// GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r and GHSA-cgrx-mc8f-2prm (1.2.8 and 1.3.3).
var knownHoles = []hole{
	{"runc", "0", "1.1.12", "a container can reach the host's files (CVE-2024-21626)"},
	{"runc", "0", "1.2.8", procHoles},
	{"runc", "1.3", "1.3.3", procHoles},
}

const procHoles = "a container can write to the host's /proc (CVE-2025-31133, CVE-2025-52565, " +
	"CVE-2025-52881)"

func (h hole) affects(version string) bool {
	return !isOlder(version, h.from) && isOlder(version, h.fixed)
}

// isOlder compares the numbers at the beginning of two versions: 1.1.5+ds1 is 1.1.5.
func isOlder(version, than string) bool {
	have, want := versionNumbers(version), versionNumbers(than)
	for i := range want {
		if have[i] != want[i] {
			return have[i] < want[i]
		}
	}
	return false
}

func versionNumbers(version string) (numbers [3]int) {
	version = strings.TrimPrefix(version, "v")
	for i, part := range strings.SplitN(version, ".", 3) {
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		numbers[i], _ = strconv.Atoi(part[:digits]) // none is 0
	}
	return numbers
}

func (d *doctor) checkPath(context.Context) {
	unsafe, err := useSafePath(d.cfg)
	if err != nil {
		d.fail("PATH", err, "")
	}
	for _, dir := range unsafe {
		d.warn("PATH", "remove it from PATH, or take away the right of others to write to it",
			"%q is not used: it is relative, in a workspace, or everybody may write to it", dir)
	}
}

// oldestCLI is the oldest version of the devcontainer CLI that knows every option of dray's `up`:
// the first one with --no-lockfile.
const oldestCLI = "0.87.0"

// checkCLI runs after checkPath, which removes unsafe elements from PATH.
func (d *doctor) checkCLI(ctx context.Context) {
	path, err := devcontainerCLI(d.cfg)
	if err != nil {
		d.warn("devcontainer CLI", "run `npm install --global @devcontainers/cli`, or set "+
			"devcontainer.cli to its path", "not found, so no workspace can be started")
		return
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		d.fail("devcontainer CLI", fmt.Errorf("%s --version: %w", path, err),
			"install Node.js 20 or later, or repeat `npm install --global @devcontainers/cli`")
	case isOlder(version, oldestCLI):
		d.warn("devcontainer CLI", "run `npm install --global @devcontainers/cli`",
			"%s has version %q; workspaces need %s or later", path, version, oldestCLI)
	default:
		d.ok("devcontainer CLI", "%s, version %s", path, version)
	}
}

// checkAgents checks that the agents were built into this program.
func (d *doctor) checkAgents() {
	for _, arch := range []string{"amd64", "arm64"} {
		agent, err := agentbin.For(arch)
		if err != nil {
			d.fail("agent", err, "")
			continue
		}
		d.ok("agent", "linux/%s, %s", arch, agent.Digest)
	}
}

func (d *doctor) checkCgroups() {
	_, closeCgroups, err := host.WithCgroups(process.SupervisorConfig{})
	closeCgroups()
	if err != nil {
		d.warn("cgroups", "run the daemon as root with cgroup v2 and Linux 5.14 or later; containers "+
			"are not concerned", "processes of a host tool that kills its supervisor may survive: %v", err)
		return
	}
	d.ok("cgroups", "leftover processes of host tools are killed and verified")
}

func (d *doctor) checkRoots() {
	if len(d.cfg.Host.Roots) == 0 {
		d.ok("host.roots", "none: no tool starts on the host")
	}
	for _, root := range d.cfg.Host.Roots {
		info, err := os.Stat(root)
		switch {
		case err != nil:
			d.warn("host.roots", "create the directory, or correct host.roots", "%v", err)
		case !info.IsDir():
			d.fail("host.roots", fmt.Errorf("%s is not a directory", root), "correct host.roots")
		case root == "/":
			d.warn("host.roots", "list the directories of your projects", "tools may run and write "+
				"everywhere on the host")
		default:
			d.ok("host.roots", "%s", root)
		}
	}
}

// checkPolicies names the policies in force. Mistakes in them are reported with the configuration.
func (d *doctor) checkPolicies() {
	files := d.cfg.Policy.Files
	switch {
	case len(checkPolicies(d.cfg)) > 0:
	case len(files) == 0:
		d.ok("policy", "none: calls are allowed, but tools with human_approval_required need an approval")
	default:
		d.ok("policy", "%s", strings.Join(files, ", "))
	}
}

// checkServers checks the programs of MCP servers, without starting them.
func (d *doctor) checkServers() {
	const check = "mcp.servers"
	for _, name := range slices.Sorted(maps.Keys(d.cfg.MCP.Servers)) {
		s, fix := d.cfg.MCP.Servers[name], "correct mcp.servers."+name
		if info, err := os.Stat(s.Workspace); err != nil || !info.IsDir() {
			d.fail(check, fmt.Errorf("%s: its workspace %s is not a directory", name, s.Workspace),
				fix+".workspace")
			continue
		}
		if s.Environment != config.EnvironmentHost {
			d.ok(check, "%s: its first call starts it in the devcontainer of %s", name, s.Workspace)
			continue
		}
		program, err := lookHost(s.Argv[0], s.Workspace, cmp.Or(s.Env["PATH"], process.DefaultPath))
		switch inRoot := slices.ContainsFunc(d.cfg.Host.Roots, func(root string) bool {
			return lexical.Contains(root, s.Workspace)
		}); {
		case !inRoot:
			d.fail(check, fmt.Errorf("%s: its workspace %s is outside host.roots", name, s.Workspace),
				"add the workspace to host.roots, or set environment: container")
		case err != nil:
			d.fail(check, fmt.Errorf("%s: %w", name, err),
				fix+".argv: name the program by its absolute path, or install it")
		default:
			d.ok(check, "%s: %s on the host", name, program)
		}
	}
}

// lookHost returns the program that a tool on the host starts for a name.
func lookHost(name, dir, path string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	for _, folder := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is in no directory of PATH=%s", name, path)
}
