package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Mount prepares the folder of one container's agent on the host, and the volume that shows it in the container read-only, so that
// nobody in there can replace what lies in it. The key names the container for all time: its workspace and configuration. The result
// is for `devcontainer up --mount`; it is empty where the engine does not see this machine's folders. Call Release when the container is made.
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

// sharesFilesystem says whether the engine runs on this kernel under this host name and is reached by a local socket. It decides only
// whether a mount is worth asking for, never how a container is talked to: that the handshake shows.
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
	same := err == nil && info.Info.Name == name && info.Info.KernelVersion == strings.TrimSpace(string(release))
	return same, nil
}

// agentDirOf is the folder on this machine that a container was made with, if it is one of ours. Whether the container really has it, the
// handshake shows.
func (e *Engine) agentDirOf(c Container) (string, bool) {
	if !strings.HasPrefix(c.AgentVolume, volumePrefix) || filepath.Base(c.AgentVolume) != c.AgentVolume {
		return "", false
	}
	folder := e.agentFolder(c.AgentVolume)
	info, err := os.Lstat(folder)
	return folder, err == nil && info.IsDir() // else another daemon's
}

// writeToMount puts the agent into the mounted folder of a container, if that folder is one of ours, and gives its path in there.
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
func (e *Engine) copyToContainer(ctx context.Context, c Container, a agentbin.Agent) (string, error) {
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
	_, err := e.api.CopyToContainer(ctx, c.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: &archive})
	if err != nil {
		return "", fmt.Errorf("copying the agent into the container: %w", err)
	}
	return agentCopyPath + "/" + name, nil
}
