package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// request names a container: by name or id, by workspace, or by both.
type request struct {
	name, workspace string
	localEnv        map[string]string
}

func requestOf(route dray.Route, inv dray.Invocation) request {
	return request{name: route.Container, workspace: route.Workspace, localEnv: inv.LocalEnv}
}

// cacheKey is all of a request that changes the answer.
type cacheKey struct{ name, workspace, localEnv string }

// cachedEnv is an environment, and the state of the world in which it was right.
type cachedEnv struct {
	env        dray.Environment
	generation uint64
	files      string
	basis      devcontainer.TrustFiles // of the trust that it was right with
	state      string                  // of the basis
	checkedAt  time.Time               // when that was seen
}

// maxCached bounds the answers that are remembered; callers with their own variables could make any
// number of them.
const maxCached = 256

func (r request) key() cacheKey {
	names := make([]string, 0, len(r.localEnv))
	for name, value := range r.localEnv {
		names = append(names, fmt.Sprintf("%q=%q", name, value))
	}
	slices.Sort(names)
	return cacheKey{r.name, r.workspace, strings.Join(names, ",")}
}

// container gives the environment of a container. A warm call asks nobody: no container has changed
// since, and the files look the same.
func (m *Manager) container(ctx context.Context, req request,
	progress func(phase, message string),
) (dray.Environment, error) {
	if env := m.lookupCached(req); env != nil {
		return env, nil
	}
	// before the question, so that a change meanwhile makes the answer stale
	generation, _ := m.watch.Generation()
	files, begun := m.fingerprint(req), time.Now()
	env, basis, err := m.resolve(ctx, req, progress)
	if err != nil {
		return nil, err
	}
	state, latest := basis.Stamp()
	if latest.After(begun.Add(-mtimeGranularity)) {
		return env, nil // the trust may have been judged before that change: the next call asks again
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.envCache) >= maxCached {
		clear(m.envCache)
	}
	m.envCache[req.key()] = &cachedEnv{
		env: env, generation: generation, files: files, basis: basis,
		state: state, checkedAt: begun,
	}
	return env, nil
}

// mtimeGranularity is more than what file systems round their times by.
const mtimeGranularity = 50 * time.Millisecond

// lookupCached gives a remembered environment that is still right.
func (m *Manager) lookupCached(req request) dray.Environment {
	generation, live := m.watch.Generation()
	m.mu.Lock()
	hit := m.envCache[req.key()]
	m.mu.Unlock()
	if hit == nil || !live || hit.generation != generation || hit.files != m.fingerprint(req) ||
		!m.trustUnchanged(hit) {
		return nil
	}
	return hit.env
}

const (
	// maxStatFiles is how many files of a trust are looked at in each call. More would be felt, and
	// are looked at once in recheckInterval.
	maxStatFiles    = 256
	recheckInterval = time.Second
)

// trustUnchanged says whether the files that the trust is bound to look as they did when it was
// judged.
func (m *Manager) trustUnchanged(hit *cachedEnv) bool {
	now := time.Now()
	m.mu.Lock()
	recent := hit.basis.Len() > maxStatFiles && now.Before(hit.checkedAt.Add(recheckInterval))
	m.mu.Unlock()
	if recent {
		return true
	}
	state, _ := hit.basis.Stamp()
	m.mu.Lock()
	hit.checkedAt = now
	m.mu.Unlock()
	return state == hit.state
}

// fingerprint is a text that changes when the configuration, the trust in it, or the place of the
// repository does.
func (m *Manager) fingerprint(req request) string {
	folder := req.workspace
	if n, ok := m.cfg.Named[req.name]; ok && folder == "" {
		folder = n.Workspace
	}
	var b strings.Builder
	note := func(path string) {
		var st syscall.Stat_t // the change time too: nobody sets that one back
		if err := syscall.Stat(path, &st); err == nil {
			fmt.Fprintf(&b, "%s %d %d %d %d;", path, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		}
	}
	note(filepath.Join(m.cfg.State, "trust.json"))
	if n := m.cfg.Named[req.name]; n.Config != "" {
		config := n.Config
		if !filepath.IsAbs(config) {
			config = filepath.Join(folder, config)
		}
		note(config)
	}
	if folder != "" {
		note(folder + "/.devcontainer/devcontainer.json")
		note(folder + "/.devcontainer.json")
		note(folder + "/.git")
	}
	return b.String()
}

// labelCache are the folders that the engine has containers for, as far as anybody asked.
type labelCache struct {
	mu         sync.Mutex
	folders    map[string]bool
	generation uint64
	valid      bool
	retryAt    time.Time // until then an engine that did not answer is not asked again
}

// The bounds of a question to an engine that may not be there: a call that leads to the host must
// not hang on it.
const (
	listTimeout = 2 * time.Second
	retryDelay  = 5 * time.Second
)

// Nearest finds the workspace that a folder lies in, from dir up to root. A folder that has a
// container, or that this daemon has used as a workspace, is one although its configuration is gone
// (RT-02): otherwise a tool in the container could send the next call to the host by removing a
// file that it sees through the mount.
func (m *Manager) Nearest(dir, root string) (folder string, ok bool) {
	if folder, ok := devcontainer.Nearest(dir, root); ok &&
		filepath.Clean(folder) == filepath.Clean(dir) {
		return folder, true // the ordinary case asks nobody
	}
	labelled := m.labelledFolders()
	return devcontainer.NearestWithKnown(dir, root, func(folder string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return labelled[folder] || m.usedFolders[folder]
	})
}

// labelledFolders are the workspaces of the engine's containers. They are asked for again only when
// a container has changed; while the engine does not answer, the last answer counts.
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
