package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/shellprobe"
	"github.com/dray-dev/dray/internal/wire"
)

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
func (a *agent) probe(s *wire.Stream, req wire.Probe, u user, env []string) ([]string, error) {
	shell := req.Shell
	if shell == "" {
		shell = u.shell
	}
	if shell == "" {
		shell = shellprobe.DefaultShell
	}
	key := strings.Join(append([]string{req.Kind, shell, req.Dir, strconv.Itoa(int(u.uid))}, env...),
		"\x00")
	p, created := a.probes.getOrCreate(key, a.probes.startupFiles(u.home))
	if created {
		p.env, p.err = a.runShell(req, shell, u, env)
		close(p.done)
		if p.err != nil {
			a.probes.forget(key, p)
		}
	}
	select {
	case <-p.done:
		return p.env, p.err
	case <-s.Done():
		return nil, errCancelled
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
	dir := req.Dir
	if dir == "" {
		dir = "/"
	}
	ctx, cancel := context.WithTimeout(context.Background(), shellprobe.Timeout)
	defer cancel()
	proc, err := a.pool.Start(ctx, process.Spec{
		Argv: probe.Argv(shell, "'"+self+"' environ"), Env: env, Dir: dir, User: credential,
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
