package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/executor/agentbin"
)

// brought gets the agent into a container that has no folder of ours, or none that works, and gives its path there.
func (e *Engine) brought(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
	path, err := e.copied(ctx, c, a)
	if err == nil || ctx.Err() != nil {
		return path, err
	}
	path, shellErr := e.byShell(ctx, c, a)
	if shellErr != nil {
		return "", errors.Join(err, shellErr)
	}
	return path, nil
}

// writeScript writes what comes on stdin to the folder $1 as $2, in one step, and says so.
const writeScript = `umask 022 && mkdir -p "$1" && cat >"$1/new-$$" && chmod 755 "$1/new-$$" && mv -f "$1/new-$$" "$1/$2" && echo written`

// byShell writes the agent through the image's own shell, where the engine cannot copy into a container: one with a mount whose source on the
// host is gone takes no copy until its next start.
func (e *Engine) byShell(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
	name := "agent-" + a.Digest
	conn, err := e.attach(ctx, c.ID, client.ExecCreateOptions{
		User: "0", WorkingDir: "/", Cmd: []string{"/bin/sh", "-c", writeScript, "sh", agentCopy, name},
	})
	if err != nil {
		return "", fmt.Errorf("writing the agent into the container: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, writeErr := conn.Write(a.Data)
	said, readErr := io.ReadAll(io.LimitReader(closeWrite(conn), maxNoise)) // also where the shell has ended before: it may say why
	if bytes.Equal(bytes.TrimSpace(said), []byte("written")) {
		return agentCopy + "/" + name, nil
	}
	if words := string(bytes.TrimSpace(append(said, conn.noise()...))); words != "" {
		return "", fmt.Errorf("writing the agent into the container: its shell said %q", words)
	}
	return "", fmt.Errorf("writing the agent into the container: %w", errors.Join(errNotWritten, writeErr, readErr, ctx.Err()))
}

var errNotWritten = errors.New("its shell ended without a word")

// closeWrite ends what goes to a process and gives what comes from it.
func closeWrite(a *attached) io.Reader {
	_ = a.hijack.CloseWrite() // without it the process would wait, and the context end it
	return a
}
