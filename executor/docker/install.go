package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// agentDirs are the directories to which the agent is copied, in order. Only root may create them.
// The second is for a container whose root file system is read-only: engines mount a tmpfs on /dev.
var agentDirs = []string{"/.dray-agent", "/dev/.dray-agent"}

// access reaches a container through its engine. It implements agent.Access.
type access struct {
	engine    *Engine
	container devcontainer.ContainerInfo
}

// Start copies the agent into the container and starts it by an exec.
func (a access) Start(ctx context.Context, user string) (agent.Conn, error) {
	arch, err := a.engine.archOf(ctx, a.container)
	if err != nil {
		return nil, err
	}
	bin, err := a.engine.agentFor(arch)
	if err != nil {
		return nil, err
	}
	path, err := a.copyAgent(ctx, bin)
	if err != nil {
		return nil, err
	}
	return a.engine.openExec(ctx, a.container.ID, client.ExecCreateOptions{
		User: user, WorkingDir: "/", Cmd: []string{path, "serve"},
	})
}

// CgroupPath returns the container's cgroup if process pid is in it.
func (a access) CgroupPath(pid int) (string, error) {
	return cgroup.ContainerPath(a.container.ID, pid)
}

func (a access) State(ctx context.Context) (agent.State, error) {
	c, err := a.engine.Inspect(ctx, a.container.ID)
	return agent.State{Running: c.Running(), StartedAt: c.StartedAt, Status: c.Status}, err
}

func nameOf(bin agentbin.Agent) string { return "agent-" + bin.Digest }

// copyAgent copies the agent with the engine, else with the image's shell, and returns its path in
// the container.
func (a access) copyAgent(ctx context.Context, bin agentbin.Agent) (string, error) {
	archive, err := archiveOf(bin)
	if err != nil {
		return "", err
	}
	_, err = a.engine.api.CopyToContainer(ctx, a.container.ID,
		client.CopyToContainerOptions{DestinationPath: "/", Content: archive})
	if err == nil {
		return agentDirs[0] + "/" + nameOf(bin), nil
	}
	errs := []error{fmt.Errorf("copy the agent into the container: %w", err)}
	for _, dir := range agentDirs {
		if ctx.Err() != nil {
			break
		}
		err := a.copyWithShell(ctx, bin, dir)
		if err == nil {
			return dir + "/" + nameOf(bin), nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func archiveOf(bin agentbin.Agent) (*bytes.Buffer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	dir := strings.TrimPrefix(agentDirs[0], "/")
	file := &tar.Header{
		Typeflag: tar.TypeReg, Name: dir + "/" + nameOf(bin), Mode: 0o755, Size: int64(len(bin.Data)),
	}
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
	if err == nil {
		err = w.WriteHeader(file)
	}
	if err == nil {
		_, err = w.Write(bin.Data)
	}
	return &archive, errors.Join(err, w.Close())
}

// writeScript writes its stdin to the directory $1 as $2, atomically, and prints one of two words
// as its last line.
const writeScript = `exec 2>&1
umask 022
mkdir -p "$1" && cat >"$1/new-$$" && chmod 755 "$1/new-$$" && mv -f "$1/new-$$" "$1/$2" &&
	echo written || echo failed`

// copyTimeout bounds the copy of the agent with a shell.
const copyTimeout = 10 * time.Second

var errScriptFailed = errors.New("its shell ended without a result")

// copyWithShell writes the agent to a directory with the image's own shell. The engine cannot copy
// files into a container whose root file system is read-only, or that has a mount whose source was
// removed.
func (a access) copyWithShell(ctx context.Context, bin agentbin.Agent, dir string) error {
	const doing = "write the agent into the container with its shell"
	conn, err := a.engine.openExec(ctx, a.container.ID, client.ExecCreateOptions{
		User: "0", WorkingDir: "/",
		Cmd: []string{"/bin/sh", "-c", writeScript, "sh", dir, nameOf(bin)},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// A shell that failed does not read, and the engine may block the writer: read its result at once.
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(bin.Data)
		_ = conn.hijack.CloseWrite() // the end of cat's input
		wrote <- err
	}()
	output, readErr := readScriptResult(conn)
	_ = conn.Close()
	writeErr := <-wrote
	output, done := strings.CutSuffix(output, "written")
	if done {
		return nil
	}
	if text := strings.TrimSpace(strings.TrimSuffix(output, "failed") + conn.Stderr()); text != "" {
		return fmt.Errorf("%s: %q", doing, text)
	}
	return fmt.Errorf("%s: %w", doing, errors.Join(errScriptFailed, writeErr, readErr, ctx.Err()))
}

// readScriptResult reads the output of writeScript up to its last word.
func readScriptResult(r io.Reader) (output string, err error) {
	var b []byte
	buf := make([]byte, 1<<10)
	for len(b) < maxStderr {
		n, err := r.Read(buf)
		b = append(b, buf[:n]...)
		output = strings.TrimSpace(string(b))
		if err != nil || strings.HasSuffix(output, "written") || strings.HasSuffix(output, "failed") {
			return output, err
		}
	}
	return output, nil
}

// agentFailure caches that a start of a container cannot run the agent of a user.
type agentFailure struct {
	reason string
	until  time.Time
}

// agentRetryDelay is how long a container that cannot run the agent is not tried again.
const agentRetryDelay = time.Minute

func (e *Engine) recentFailure(key string) (reason string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.failures[key]
	if ok && time.Now().After(f.until) {
		delete(e.failures, key)
		ok = false
	}
	return f.reason, ok
}

func (e *Engine) recordFailure(key, container, reason string) {
	e.log.Warn("agent not installed, the engine's exec is used", zap.String("container", container),
		zap.String("reason", reason))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures[key] = agentFailure{reason, time.Now().Add(agentRetryDelay)}
}
