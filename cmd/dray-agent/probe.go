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
	"syscall"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/shellprobe"
	"github.com/dray-dev/dray/internal/wire"
)

// probeCache keeps what a shell answered, for as long as the files that shells read at their start
// look the same.
type probeCache struct {
	mu    sync.Mutex
	known map[string]*probeEntry
}

// probeEntry is one answer; done is closed when it is there. Callers who come meanwhile wait for it
// instead of asking again.
type probeEntry struct {
	files string
	done  chan struct{}
	env   []string
	err   error
}

// probe asks the user's shell for its environment, as the reference does: as the user, with an open
// stdin, without a terminal.
func (a *agent) probe(s *wire.Stream, req wire.Probe, u user, env []string) ([]string, error) {
	shell := req.Shell
	if shell == "" {
		shell = u.shell
	}
	if shell == "" {
		shell = shellprobe.DefaultShell
	}
	files := startupFiles(u.home)
	key := strings.Join(append([]string{req.Kind, shell, req.Dir, strconv.Itoa(int(u.uid))}, env...),
		"\x00")
	p, mine := a.probes.getOrCreate(key, files)
	if mine {
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
		return nil, errors.New("the call was given up")
	}
}

func (c *probeCache) getOrCreate(key, files string) (p *probeEntry, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.known[key]; p != nil && p.files == files {
		return p, false
	}
	if c.known == nil || len(c.known) > 64 {
		c.known = map[string]*probeEntry{}
	}
	p = &probeEntry{files: files, done: make(chan struct{})}
	c.known[key] = p
	return p, true
}

func (c *probeCache) forget(key string, p *probeEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[key] == p {
		delete(c.known, key)
	}
}

// runShell runs the shell once.
func (a *agent) runShell(req wire.Probe, shell string, u user, env []string) ([]string, error) {
	question, ok := shellprobe.New(req.Kind)
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
		Argv: question.Argv(shell, "'"+self+"' environ"),
		Env:  env, Dir: dir, User: credential,
	})
	if err != nil {
		return nil, err
	}
	out, err := readOutput(ctx, proc)
	if err != nil {
		return nil, err
	}
	return question.ParseOutput(out)
}

// readOutput collects what the shell prints; after the timeout the shell is ended. Its stdin stays
// open and empty.
func readOutput(ctx context.Context, proc *process.Process) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { proc.Stop(0) })
	defer stop()
	var quiet sync.WaitGroup
	quiet.Go(func() { _, _ = io.Copy(io.Discard, proc.Stderr()) })
	var out bytes.Buffer
	n, _ := io.CopyN(&out, proc.Stdout(), shellprobe.MaxAnswer)
	if n == shellprobe.MaxAnswer {
		proc.Stop(0)
		_, _ = io.Copy(io.Discard, proc.Stdout())
	}
	_, err := proc.Wait()
	quiet.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it took longer than %s", shellprobe.Timeout)
	case n == shellprobe.MaxAnswer:
		return nil, fmt.Errorf("it printed more than %d bytes", shellprobe.MaxAnswer)
	}
	return out.Bytes(), err
}

// startupPaths are the files that shells read at their start, the system's and the user's. What
// these read in turn is not followed: after a change there alone, the container's next start or a
// change of one of these makes it seen.
var startupPaths = struct{ system, user []string }{
	system: []string{
		"/etc/passwd", "/etc/profile", "/etc/profile.d", "/etc/environment", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv",
		"/etc/zsh/zprofile", "/etc/zsh/zshrc", "/etc/zsh/zlogin", "/etc/zshenv", "/etc/fish/config.fish",
	},
	user: []string{
		".bash_profile", ".bash_login", ".profile", ".bashrc", ".zshenv", ".zprofile",
		".zshrc", ".zlogin", ".config/fish/config.fish",
	},
}

// startupFiles is a text that changes when one of the files does.
func startupFiles(home string) string {
	b := make([]byte, 0, 2<<10)
	for _, path := range startupPaths.system {
		b = appendStat(b, path)
	}
	if dir, err := os.Open("/etc/profile.d"); err == nil {
		names, _ := dir.Readdirnames(maxScripts) // what cannot be read is not read by the shell either
		_ = dir.Close()
		for _, name := range names {
			b = appendStat(b, "/etc/profile.d/"+name)
		}
	}
	for _, name := range startupPaths.user {
		b = appendStat(b, home+"/"+name)
	}
	return string(b)
}

// maxScripts is more than any image has in /etc/profile.d.
const maxScripts = 1000

// appendStat appends a file's place and times. Each call comes by here, so it is plain.
func appendStat(b []byte, path string) []byte {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return b
	}
	b = append(b, path...)
	// it only has to differ
	for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} { //nolint:gosec
		b = append(strconv.AppendInt(append(b, ' '), n, 36), ';')
	}
	return b
}
