package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/shellprobe"
	"github.com/dray-dev/dray/internal/wire"
)

// startTimeout bounds a start without the probe, which has a timeout of its own.
const startTimeout = 20 * time.Second

// callProcess is the process of a call.
type callProcess struct {
	*process.Process
	results  string // the directory in DRAY_RESULTS; empty for none
	warnings []string
}

// start resolves a request against the container's files as they are now, and runs it.
func (a *agent) start(c *call, req wire.Start) (*callProcess, error) {
	user, err := a.users.lookup(c.ctx, req.User, req.Groups)
	if err != nil {
		return nil, err
	}
	credential, err := a.credential(user)
	if err != nil {
		return nil, err
	}
	env, warnings := a.environment(c.ctx, req, user)
	spec := process.Spec{
		Argv: req.Argv, Dir: cmp.Or(req.Dir, user.home), RealDir: req.RealDir, User: credential,
		Grace: req.Grace, Keep: req.KeepLeftovers, Terminal: req.Terminal,
	}
	if len(req.Helper) > 0 {
		spec.Argv = append([]string{"/proc/self/exe"}, req.Helper...)
	}
	results := ""
	if req.Call != "" {
		if results, err = a.makeResults(user); err != nil {
			warnings = append(warnings, "the tool has no DRAY_RESULTS: "+err.Error())
		}
	}
	spec.Env = process.CallEnv(env, req.Call, results)
	ctx, cancel := context.WithTimeout(c.ctx, startTimeout)
	defer cancel()
	proc, err := a.launch(ctx, c, spec, req)
	if err != nil {
		a.removeResults(results)
		return nil, err
	}
	return &callProcess{proc, results, warnings}, nil
}

// launch starts a process with the permit and the streams that the daemon passed, or after it has
// allowed the start and with pipes of its own.
func (a *agent) launch(ctx context.Context, c *call, spec process.Spec, req wire.Start,
) (*process.Process, error) {
	files := c.stream.Files()
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	switch {
	case c.stream.FilesDropped():
		return nil, &process.StartError{Step: process.StepFork, Err: unix.EMFILE}
	case len(files) == 0 && !req.PassedFDs:
		if err := c.permission(); err != nil {
			return nil, err
		}
		return a.pool.Start(ctx, spec)
	case len(files) == 1 && !req.PassedFDs:
		spec.Permit = files[0]
		return a.pool.Start(ctx, spec)
	case len(files) == passedFDs && req.PassedFDs:
		streams := process.ChildFiles{Stdin: files[0], Stdout: files[1], Stderr: files[2]}
		spec.Permit, files = files[3], files[3:]
		return a.pool.StartWith(ctx, spec, streams)
	default:
		return nil, dray.Errorf(dray.CodeAgentLost, "the daemon passed %d file descriptors, want %d",
			len(files), passedFDs)
	}
}

// passedFDs is the number of fds that come with wire.Start.PassedFDs: three streams and the permit.
const passedFDs = 4

// credential returns the credentials of a user; nil if the agent cannot change its own and has them
// already.
func (a *agent) credential(u user) (*process.Credential, error) {
	if a.self.switchUser {
		return &process.Credential{UID: u.uid, GID: u.gid, Groups: u.groups}, nil
	}
	if int(u.uid) == a.self.uid {
		return nil, nil
	}
	return nil, dray.Errorf(dray.CodeBadUser, "this agent runs as uid %d and cannot change to uid %d",
		a.self.uid, u.uid)
}

// failedMessage gives an error its code here, where the failed step is known.
func failedMessage(err error, dir string) *wire.Failed {
	if errors.Is(err, context.Canceled) { // the daemon has ended the call and has its own reason
		err = dray.Errorf(dray.CodeShuttingDown, "the call has ended: %w", err)
	}
	e := dray.AsError(process.WrapStartError(err, dir))
	return &wire.Failed{Code: e.Code, Message: e.Message}
}

// environment builds the environment of a process. From low to high precedence: what the engine
// gives an exec, the result of the shell probe, the call's variables, the configuration's remoteEnv
// (EX-07).
func (a *agent) environment(ctx context.Context, req wire.Start, u user) (env, warnings []string) {
	vars := newEnvList(req.Env)
	vars.setDefault("HOME", u.home)
	if req.Probe.Kind != "" && req.Probe.Kind != "none" {
		probed, err := a.probe(ctx, req.Probe, u, vars.list())
		if err != nil {
			warnings = append(warnings, "could not get the environment from the user's shell: "+err.Error())
		}
		for _, kv := range probed {
			vars.set(kv)
		}
	}
	for _, kv := range slices.Concat(req.CallEnv, req.RemoteEnv) {
		vars.set(kv)
	}
	if req.Terminal != nil {
		vars.setDefault("TERM", "xterm") // as an engine does for an exec with a terminal
	}
	return vars.list(), warnings
}

// envList is an environment in which each name occurs once, in the order of its first occurrence.
type envList struct {
	vars  []string // NAME=VALUE
	index map[string]int
}

func newEnvList(env []string) *envList {
	v := &envList{vars: make([]string, 0, 2*len(env)), index: make(map[string]int, 2*len(env))}
	for _, kv := range env {
		v.set(kv)
	}
	return v
}

func (v *envList) set(kv string) {
	name, _, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return
	}
	if i, known := v.index[name]; known {
		v.vars[i] = kv
		return
	}
	v.index[name] = len(v.vars)
	v.vars = append(v.vars, kv)
}

func (v *envList) setDefault(name, value string) {
	if _, known := v.index[name]; !known {
		v.set(name + "=" + value)
	}
}

// list returns a copy of the variables.
func (v *envList) list() []string { return slices.Clone(v.vars) }

// printEnviron writes the variables of this process as /proc/self/environ has them, for images
// without cat.
func printEnviron(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(os.Environ(), "\x00")+"\x00")
	return err
}

// probeCache keeps the environments that shells printed until a startup file of the shells changes.
type probeCache struct {
	mu      sync.Mutex
	entries map[string]*probeEntry
	scripts dirNames
}

// probeEntry is one result. done is closed when it is there; concurrent callers wait for it.
type probeEntry struct {
	files string
	done  chan struct{}
	env   []string
	err   error
}

// probe returns the environment that the user's shell prints, as the reference does: run as the
// user, with an open stdin, without a terminal.
func (a *agent) probe(ctx context.Context, req wire.Probe, u user, env []string) ([]string, error) {
	shell := cmp.Or(req.Shell, u.shell, shellprobe.DefaultShell)
	key := strings.Join(append([]string{req.Kind, shell, req.Dir, strconv.Itoa(int(u.uid))}, env...),
		"\x00")
	p, created := a.probes.getOrCreate(key, a.probes.startupFiles(u.home))
	if created {
		//nolint:contextcheck // other calls may wait for it when this one has ended
		go func() {
			defer close(p.done)
			defer func() {
				if v := recover(); v != nil {
					p.err = fmt.Errorf("panic in the agent: %v", v)
				}
			}()
			if p.env, p.err = a.runShell(req, shell, u, env); p.err != nil {
				a.probes.forget(key, p)
			}
		}()
	}
	select {
	case <-p.done:
		return p.env, p.err
	case <-ctx.Done():
		return nil, errors.New("the call was cancelled")
	}
}

// maxProbes bounds the number of cached environments.
const maxProbes = 64

func (c *probeCache) getOrCreate(key, files string) (p *probeEntry, created bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.entries[key]; p != nil && p.files == files {
		return p, false
	}
	if c.entries == nil || len(c.entries) > maxProbes {
		c.entries = map[string]*probeEntry{}
	}
	p = &probeEntry{files: files, done: make(chan struct{})}
	c.entries[key] = p
	return p, true
}

func (c *probeCache) forget(key string, p *probeEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == p {
		delete(c.entries, key)
	}
}

// runShell runs the shell once.
func (a *agent) runShell(req wire.Probe, shell string, u user, env []string) ([]string, error) {
	probe, ok := shellprobe.New(req.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind of probe %q", req.Kind)
	}
	credential, err := a.credential(u)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), shellprobe.Timeout)
	defer cancel()
	proc, err := a.pool.Start(ctx, process.Spec{
		Argv: probe.Argv(shell, "'"+self+"' environ"), Env: env, Dir: cmp.Or(req.Dir, "/"),
		User: credential,
	})
	if err != nil {
		return nil, err
	}
	out, err := readOutput(ctx, proc)
	if err != nil {
		return nil, err
	}
	return probe.ParseOutput(out)
}

// readOutput returns what the shell prints, and ends the shell when ctx is done. Its stdin stays
// open and empty.
func readOutput(ctx context.Context, proc *process.Process) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { proc.Stop(0) })
	defer stop()
	var stderr sync.WaitGroup
	stderr.Go(func() { _, _ = io.Copy(io.Discard, proc.Stderr()) })
	var out bytes.Buffer
	n, _ := io.CopyN(&out, proc.Stdout(), shellprobe.MaxOutput)
	if n == shellprobe.MaxOutput {
		proc.Stop(0)
		_, _ = io.Copy(io.Discard, proc.Stdout())
	}
	_, err := proc.Wait()
	stderr.Wait()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("the shell ran longer than %s", shellprobe.Timeout)
	case n == shellprobe.MaxOutput:
		return nil, fmt.Errorf("the shell printed more than %d bytes", shellprobe.MaxOutput)
	}
	return out.Bytes(), err
}

// profileDir has scripts of any name.
const profileDir = "/etc/profile.d"

// startupPaths are the files that shells read at their start. Files that these include are not
// checked: such a change has effect when one of these changes, or the container restarts.
var startupPaths = struct{ system, user []string }{
	system: []string{
		"/etc/passwd", "/etc/profile", "/etc/environment", "/etc/bash.bashrc", "/etc/bashrc",
		"/etc/zsh/zshenv", "/etc/zsh/zprofile", "/etc/zsh/zshrc", "/etc/zsh/zlogin", "/etc/zshenv",
		"/etc/fish/config.fish",
	},
	user: []string{
		".bash_profile", ".bash_login", ".profile", ".bashrc", ".zshenv", ".zprofile", ".zshrc",
		".zlogin", ".config/fish/config.fish",
	},
}

// startupFiles returns a text that changes when one of the startup files does.
func (c *probeCache) startupFiles(home string) string {
	f := newFingerprint()
	for _, path := range startupPaths.system {
		f.add(path)
	}
	f.add(profileDir)
	for _, name := range c.scripts.list(profileDir) {
		f.add(profileDir + "/" + name)
	}
	for _, name := range startupPaths.user {
		f.add(home + "/" + name)
	}
	return string(f.text)
}
