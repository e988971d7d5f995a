package workspace

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray/internal/devcontainer"
)

// labelCache are the folders that the engine has containers for, as far as anybody asked.
type labelCache struct {
	mu         sync.Mutex
	folders    map[string]bool
	generation uint64
	valid      bool
	retryAt    time.Time // until then an engine that did not answer is not asked again
}

// The bounds of a question to an engine that may not be there: a call that leads to the host must not hang on it.
const (
	listTimeout = 2 * time.Second
	retryDelay  = 5 * time.Second
)

// Nearest finds the workspace that a folder lies in, from dir up to root. A folder that has a container, or that this daemon has used as a
// workspace, is one although its configuration is gone (RT-02): otherwise a tool in the container could send the next call to the host by
// removing a file that it sees through the mount.
func (m *Manager) Nearest(dir, root string) (folder string, ok bool) {
	if folder, ok := devcontainer.Nearest(dir, root); ok && filepath.Clean(folder) == filepath.Clean(dir) {
		return folder, true // the ordinary case asks nobody
	}
	labelled := m.labelledFolders()
	return devcontainer.NearestWithKnown(dir, root, func(folder string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return labelled[folder] || m.usedFolders[folder]
	})
}

// labelledFolders are the workspaces of the engine's containers. They are asked for again only when a container has changed; while the engine does
// not answer, the last answer counts.
func (m *Manager) labelledFolders() map[string]bool {
	generation, live := m.watch.Generation()
	k := &m.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.valid && live && k.generation == generation || time.Now().Before(k.retryAt) {
		return k.folders
	}
	ctx, cancel := context.WithTimeout(m.ctx, listTimeout)
	defer cancel()
	list, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		m.log.Debug("containers not listed", zap.Error(err))
		k.retryAt = time.Now().Add(retryDelay)
		return k.folders
	}
	folders := make(map[string]bool, len(list))
	for _, c := range list {
		folders[filepath.Clean(c.Labels[devcontainer.LabelFolder])] = true
	}
	k.folders, k.generation, k.valid = folders, generation, true
	return folders
}
