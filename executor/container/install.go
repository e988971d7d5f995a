package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray/executor/agentbin"
)

const (
	// agentMountPath is where `up` mounts the folder of a container's agent, read-only.
	agentMountPath = "/.dray"
	// agentCopyPath is where the agent is copied to in containers that we did not make.
	agentCopyPath = "/.dray-agent"
	// volumePrefix begins the names of our volumes.
	volumePrefix = "dray-agent-"
)

// Mount prepares the folder of one container's agent on the host, and the volume that shows it in
// the container read-only, so that nobody in there can replace what lies in it. The key names the
// container for all time: its workspace and configuration. The result is for `devcontainer up
// --mount`; it is empty where the engine does not see this machine's folders. Call Release when the
// container is made.
func (e *Engine) Mount(ctx context.Context, key string) (string, error) {
	local, err := e.sharesFilesystem(ctx)
	if err != nil || !local {
		return "", err
	}
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	name := e.volumeName(key)
	folder := e.agentFolder(name)
	if err := makeAgentFolder(folder); err != nil {
		return "", err
	}
	_, err = e.api.VolumeCreate(ctx, client.VolumeCreateOptions{
		Name: name, Driver: "local", Labels: map[string]string{volumeLabel: "1"},
		DriverOpts: map[string]string{"type": "none", "o": "bind,ro", "device": folder},
	})
	if err != nil {
		return "", e.unavailable("making the agent's volume", err)
	}
	e.volumes.acquire(name)
	return fmt.Sprintf("type=volume,source=%s,target=%s,external=true", name, agentMountPath), nil
}

func (e *Engine) volumeName(key string) string {
	sum := sha256.Sum256([]byte(e.opts.RunDir + "\x00" + key))
	return volumePrefix + hex.EncodeToString(sum[:])[:24]
}

func (e *Engine) agentFolder(volume string) string { return filepath.Join(e.opts.RunDir, volume) }

// sharesFilesystem says whether the engine runs on this kernel under this host name and is reached
// by a local socket. It decides only whether a mount is worth asking for, never how a container is
// talked to: that the handshake shows.
func (e *Engine) sharesFilesystem(ctx context.Context) (bool, error) {
	if !strings.HasPrefix(e.Host(), "unix://") {
		return false, nil
	}
	info, err := e.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, e.unavailable("asking where it runs", err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, nil //nolint:nilerr // no Linux here, so no shared kernel
	}
	name, err := os.Hostname()
	same := err == nil && info.Info.Name == name &&
		info.Info.KernelVersion == strings.TrimSpace(string(release))
	return same, nil
}

// agentDirOf is the folder on this machine that a container was made with, if it is one of ours.
// Whether the container really has it, the handshake shows.
func (e *Engine) agentDirOf(c Container) (string, bool) {
	if !strings.HasPrefix(c.AgentVolume, volumePrefix) ||
		filepath.Base(c.AgentVolume) != c.AgentVolume {
		return "", false
	}
	folder := e.agentFolder(c.AgentVolume)
	info, err := os.Lstat(folder)
	return folder, err == nil && info.IsDir() // else another daemon's
}

// writeToMount puts the agent into the mounted folder of a container, if that folder is one of
// ours, and gives its path in there.
func (e *Engine) writeToMount(c Container, a agentbin.Agent) (string, bool) {
	folder, ok := e.agentDirOf(c)
	if !ok {
		return "", false
	}
	name := "agent-" + a.Digest
	if err := writeAgent(filepath.Join(folder, name), a.Data); err != nil {
		e.log.Warn("agent not placed in its mounted folder, copied instead", zap.Error(err))
		return "", false
	}
	return agentMountPath + "/" + name, true
}

// writeAgent replaces the file in one step, because the one of an earlier start may be running.
func writeAgent(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(data)
	if chmodErr := temp.Chmod(0o755); err == nil {
		err = chmodErr
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// copyToContainer copies the agent into a container and gives its path there.
func (e *Engine) copyToContainer(ctx context.Context, c Container, a agentbin.Agent) (string,
	error,
) {
	name := "agent-" + a.Digest
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	folder := strings.TrimPrefix(agentCopyPath, "/")
	headers := []*tar.Header{
		{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: folder + "/" + name, Mode: 0o755, Size: int64(len(a.Data))},
	}
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return "", err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(a.Data); err != nil {
				return "", err
			}
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	_, err := e.api.CopyToContainer(ctx, c.ID,
		client.CopyToContainerOptions{DestinationPath: "/", Content: &archive})
	if err != nil {
		return "", fmt.Errorf("copying the agent into the container: %w", err)
	}
	return agentCopyPath + "/" + name, nil
}

// installAgent gets the agent into a container that has no folder of ours, or none that works, and
// gives its path there.
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

// writeScript writes what comes on stdin to the folder $1 as $2, in one step. Its last line is one
// of two words.
const writeScript = `exec 2>&1
umask 022 && mkdir -p "$1" && cat >"$1/new-$$" && chmod 755 "$1/new-$$" && mv -f "$1/new-$$" "$1/$2" && echo written || echo failed`

// copyWithShell writes the agent through the image's own shell, where the engine cannot copy into a
// container: one with a mount whose source on the host is gone takes no copy until its next start.
func (e *Engine) copyWithShell(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
	name := "agent-" + a.Digest
	conn, err := e.openExec(ctx, c.ID, client.ExecCreateOptions{
		User: "0", WorkingDir: "/", Cmd: []string{
			"/bin/sh", "-c", writeScript, "sh", agentCopyPath,
			name,
		},
	})
	if err != nil {
		return "", fmt.Errorf("writing the agent into the container: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// A shell that failed reads no more, and an engine may then keep a writer waiting: what it says
	// must not wait for that.
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
	if words := strings.TrimSpace(strings.TrimSuffix(said, "failed") +
		conn.stderrText()); words != "" {
		return "", fmt.Errorf("writing the agent into the container: its shell said %q", words)
	}
	return "", fmt.Errorf("writing the agent into the container: %w",
		errors.Join(errScriptFailed, writeErr, readErr, ctx.Err()))
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

// volumeLabel marks our volumes.
const volumeLabel = "dev.dray.agent"

// staleDirAge is how long a folder of ours lies untouched, without a volume at this engine, until
// nobody is taken to need it: it may belong to an engine that is not used now.
const staleDirAge = 30 * 24 * time.Hour

// volumeRefs are those of our volumes that containers are being made for.
type volumeRefs struct {
	mu   sync.Mutex // held while one is made or removed
	refs map[string]int
}

// acquire keeps a volume until it is released as often.
func (v *volumeRefs) acquire(name string) {
	if v.refs == nil {
		v.refs = map[string]int{}
	}
	v.refs[name]++
}

// Release says that the container for which Mount was called has been made, or never will be: from
// then on its volume and folder go when no container has them any more.
func (e *Engine) Release(key string) {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	name := e.volumeName(key)
	if e.volumes.refs[name]--; e.volumes.refs[name] <= 0 {
		delete(e.volumes.refs, name)
	}
}

// collectGarbage removes the volumes and folders that no container uses, running or not, and
// remakes folders that are gone though one does. It touches what this daemon's own run folder holds
// and nothing else; whether a volume is in use the engine decides, in the act of removing it.
func (e *Engine) collectGarbage(ctx context.Context) error {
	if local, err := e.sharesFilesystem(ctx); err != nil || !local {
		return err
	}
	res, err := e.api.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label",
		volumeLabel)})
	if err != nil {
		return e.unavailable("listing volumes", err)
	}
	present := map[string]bool{}
	var errs []error
	for _, v := range res.Items {
		if v.Options["device"] != e.agentFolder(v.Name) {
			continue // another daemon's
		}
		present[v.Name] = true
		errs = append(errs, e.collectVolume(ctx, v.Name))
	}
	return errors.Join(append(errs, e.tidyFolders(present))...)
}

func (e *Engine) collectVolume(ctx context.Context, name string) error {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	if e.volumes.refs[name] > 0 {
		return nil
	}
	_, err := e.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	switch {
	case errdefs.IsConflict(err): // a container has it
		return makeAgentFolder(e.agentFolder(name))
	case err != nil && !errdefs.IsNotFound(err):
		return e.unavailable("removing a volume", err)
	}
	e.log.Info("removed what no container uses any more", zap.String("volume", name))
	return os.RemoveAll(e.agentFolder(name))
}

// tidyFolders removes folders that were forgotten.
func (e *Engine) tidyFolders(present map[string]bool) error {
	folders, err := filepath.Glob(e.agentFolder(volumePrefix + "*"))
	if err != nil {
		return nil //nolint:nilerr // the run folder's own name reads as a pattern: then they stay
	}
	var errs []error
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err == nil && !present[filepath.Base(folder)] && time.Since(info.ModTime()) > staleDirAge {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}

// recreateAgentDir makes the folder behind a container's volume anew if it is gone: without it the
// engine can neither start the container again nor copy anything into it.
func (e *Engine) recreateAgentDir(ctx context.Context, c Container) {
	if c.AgentVolume == "" {
		return
	}
	folder := e.agentFolder(c.AgentVolume)
	if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	res, err := e.api.VolumeInspect(ctx, c.AgentVolume, client.VolumeInspectOptions{})
	if err != nil || res.Volume.Options["device"] != folder {
		return // not ours
	}
	if err := makeAgentFolder(folder); err != nil {
		e.log.Warn("agent's folder is gone and cannot be made again", zap.Error(err))
	}
}

func makeAgentFolder(folder string) error {
	// the container's users must be able to enter it
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec
		return fmt.Errorf("making the agent's folder: %w", err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // whatever the umask
		return fmt.Errorf("opening the agent's folder: %w", err)
	}
	return nil
}
