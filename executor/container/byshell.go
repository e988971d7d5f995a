package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/executor/agentbin"
)

// installAgent gets the agent into a container that has no folder of ours, or none that works, and gives its path there.
func (e *Engine) installAgent(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
	path, err := e.copyToContainer(ctx, c, a)
	if err == nil || ctx.Err() != nil {
		return path, err
	}
	path, shellErr := e.copyWithShell(ctx, c, a)
	if shellErr != nil {
		return "", errors.Join(err, shellErr)
	}
	return path, nil
}

// writeScript writes what comes on stdin to the folder $1 as $2, in one step. Its last line is one of two words.
const writeScript = `exec 2>&1
umask 022 && mkdir -p "$1" && cat >"$1/new-$$" && chmod 755 "$1/new-$$" && mv -f "$1/new-$$" "$1/$2" && echo written || echo failed`

// copyWithShell writes the agent through the image's own shell, where the engine cannot copy into a container: one with a mount whose source on the
// host is gone takes no copy until its next start.
func (e *Engine) copyWithShell(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
	name := "agent-" + a.Digest
	conn, err := e.openExec(ctx, c.ID, client.ExecCreateOptions{
		User: "0", WorkingDir: "/", Cmd: []string{"/bin/sh", "-c", writeScript, "sh", agentCopyPath, name},
	})
	if err != nil {
		return "", fmt.Errorf("writing the agent into the container: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// A shell that failed reads no more, and an engine may then keep a writer waiting: what it says must not wait for that.
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(a.Data)
		_ = conn.hijack.CloseWrite() // without it the shell would wait for more
		wrote <- err
	}()
	said, readErr := readScriptResult(conn)
	_ = conn.Close()
	writeErr := <-wrote
	said, done := strings.CutSuffix(said, "written")
	if done {
		return agentCopyPath + "/" + name, nil
	}
	if words := strings.TrimSpace(strings.TrimSuffix(said, "failed") + conn.stderrText()); words != "" {
		return "", fmt.Errorf("writing the agent into the container: its shell said %q", words)
	}
	return "", fmt.Errorf("writing the agent into the container: %w", errors.Join(errScriptFailed, writeErr, readErr, ctx.Err()))
}

// readScriptResult reads until the script has told its end, and gives all that it said.
func readScriptResult(r io.Reader) (said string, err error) {
	var b []byte
	buf := make([]byte, 1<<10)
	for len(b) < maxStderr {
		n, err := r.Read(buf)
		b = append(b, buf[:n]...)
		said = strings.TrimSpace(string(b))
		if err != nil || strings.HasSuffix(said, "written") || strings.HasSuffix(said, "failed") {
			return said, err
		}
	}
	return said, nil
}

var errScriptFailed = errors.New("its shell ended without a word")
