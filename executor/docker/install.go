package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// agentCopyPath is where the agent is copied to in containers that do not mount its directory.
const agentCopyPath = "/.dray-agent"

// access reaches a container through its engine. It implements agent.Access.
type access struct {
	engine    *Engine
	container devcontainer.ContainerInfo
}

// Placements returns the mounted directory if the container has one, and a copy.
func (a access) Placements(ctx context.Context) ([]agent.Placement, error) {
	arch, err := a.engine.archOf(ctx, a.container)
	if err != nil {
		return nil, err
	}
	bin, err := agentbin.For(arch)
	if err != nil {
		return nil, err
	}
	a.engine.dirs.restore(ctx, a.container)
	if _, err := a.engine.dirs.of(a.container); err == nil {
		return []agent.Placement{a.place(bin, a.writeToMount), a.place(bin, a.copyToContainer)}, nil
	}
	return []agent.Placement{a.place(bin, a.copyToContainer)}, nil
}

// place returns a placement that puts the agent's program into the container with install.
func (a access) place(bin agentbin.Agent,
	install func(ctx context.Context, bin agentbin.Agent) (path string, err error),
) agent.Placement {
	return func(ctx context.Context, user string) (io.ReadWriteCloser, error) {
		path, err := install(ctx, bin)
		if err != nil {
			return nil, err
		}
		return a.engine.openExec(ctx, a.container.ID, client.ExecCreateOptions{
			User: user, WorkingDir: "/", Cmd: []string{path, "serve"},
		})
	}
}

// SocketDir returns the directory behind the container's agent volume.
func (a access) SocketDir() (local, inside string, err error) {
	local, err = a.engine.dirs.of(a.container)
	return local, agentMountPath, err
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

// writeToMount writes the agent into the mounted directory and returns its path in the container.
func (a access) writeToMount(_ context.Context, bin agentbin.Agent) (string, error) {
	dir, err := a.engine.dirs.of(a.container)
	if err == nil {
		err = replaceFile(filepath.Join(dir, nameOf(bin)), bin.Data)
	}
	if err != nil {
		return "", fmt.Errorf("write the agent into its mounted directory: %w", err)
	}
	return agentMountPath + "/" + nameOf(bin), nil
}

// replaceFile replaces a program atomically: the old one may be running.
func replaceFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Chmod(0o755), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// copyToContainer copies the agent with the engine, else with the image's shell, and returns its
// path in the container.
func (a access) copyToContainer(ctx context.Context, bin agentbin.Agent) (string, error) {
	archive, err := archiveOf(bin)
	if err != nil {
		return "", err
	}
	path := agentCopyPath + "/" + nameOf(bin)
	_, err = a.engine.api.CopyToContainer(ctx, a.container.ID,
		client.CopyToContainerOptions{DestinationPath: "/", Content: archive})
	if err == nil {
		return path, nil
	}
	err = fmt.Errorf("copy the agent into the container: %w", err)
	if ctx.Err() != nil {
		return "", err
	}
	if shellErr := a.copyWithShell(ctx, bin); shellErr != nil {
		return "", errors.Join(err, shellErr)
	}
	return path, nil
}

func archiveOf(bin agentbin.Agent) (*bytes.Buffer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	dir := strings.TrimPrefix(agentCopyPath, "/")
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

// copyWithShell writes the agent with the image's own shell. The engine cannot copy files into a
// container that has a mount whose source was removed.
func (a access) copyWithShell(ctx context.Context, bin agentbin.Agent) error {
	const doing = "write the agent into the container with its shell"
	conn, err := a.engine.openExec(ctx, a.container.ID, client.ExecCreateOptions{
		User: "0", WorkingDir: "/",
		Cmd: []string{"/bin/sh", "-c", writeScript, "sh", agentCopyPath, nameOf(bin)},
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
