package workspace

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/linux"
)

// request names a container by name or id, by workspace, or by both.
type request struct {
	name, workspace string
	localEnv        map[string]string
}

func requestOf(route dray.Route, inv dray.Invocation) request {
	return request{name: route.Container, workspace: route.Workspace, localEnv: inv.LocalEnv}
}

// cacheKey is the part of a request that the result depends on.
type cacheKey struct{ name, workspace, localEnv string }

func (r request) key() cacheKey {
	if len(r.localEnv) == 0 {
		return cacheKey{name: r.name, workspace: r.workspace}
	}
	vars := make([]string, 0, len(r.localEnv))
	for name, value := range r.localEnv {
		vars = append(vars, fmt.Sprintf("%q=%q", name, value))
	}
	slices.Sort(vars)
	return cacheKey{r.name, r.workspace, strings.Join(vars, ",")}
}

// cached is a value with what it was derived from. It is valid while all of that is unchanged.
type cached[T any] struct {
	value      T
	generation uint64 // of the engine's containers
	files      string // a fingerprint
	trust      trust.Files
	stamp      string    // of trust
	checkedAt  time.Time // when stamp was compared
}

const (
	// maxCached bounds the cache: callers can bring any number of variables.
	maxCached = 256
	// mtimeGranularity exceeds the precision of the times of file systems.
	mtimeGranularity = 50 * time.Millisecond
	// maxStatFiles is the number of trust inputs that are checked by every call. More of them are
	// checked once in recheckInterval.
	maxStatFiles    = 256
	recheckInterval = time.Second
)

// cache holds values of type T. It is safe for concurrent use.
type cache[T any] struct {
	mu      sync.Mutex
	entries map[cacheKey]*cached[T]
}

func (c *cache[T]) has(key cacheKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key] != nil
}

// get returns the entry of a key if it has this fingerprint and generation and its trust inputs are
// unchanged, else nil.
func (c *cache[T]) get(ctx context.Context, key cacheKey, files string, generation uint64,
) *cached[T] {
	c.mu.Lock()
	entry := c.entries[key]
	c.mu.Unlock()
	if entry == nil || entry.generation != generation || entry.files != files ||
		!c.trustUnchanged(ctx, entry) {
		return nil
	}
	return entry
}

// put adds an entry whose derivation began at checkedAt, unless a trust input has changed since.
func (c *cache[T]) put(ctx context.Context, key cacheKey, entry *cached[T]) {
	stamp, latest, err := entry.trust.Stamp(ctx)
	if err != nil || latest.After(entry.checkedAt.Add(-mtimeGranularity)) {
		return // trust may have been evaluated before that change
	}
	entry.stamp = stamp
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || len(c.entries) >= maxCached {
		c.entries = map[cacheKey]*cached[T]{}
	}
	c.entries[key] = entry
}

// trustUnchanged reports whether the trust inputs are those that the entry was made with.
func (c *cache[T]) trustUnchanged(ctx context.Context, entry *cached[T]) bool {
	now := time.Now()
	c.mu.Lock()
	recent := entry.trust.Len() > maxStatFiles && now.Before(entry.checkedAt.Add(recheckInterval))
	c.mu.Unlock()
	if recent {
		return true
	}
	stamp, _, err := entry.trust.Stamp(ctx)
	c.mu.Lock()
	entry.checkedAt = now
	c.mu.Unlock()
	return err == nil && stamp == entry.stamp
}

// environment returns the environment of a container. If nothing has changed since the last call,
// it comes from the cache and the engine is not asked.
func (m *Manager) environment(ctx context.Context, req request,
	progress func(phase, message string),
) (dray.Environment, error) {
	if env := m.lookupCached(ctx, req); env != nil {
		return env, nil
	}
	// read first: a change meanwhile makes the entry invalid
	generation, _ := m.engine.Generation()
	begun := time.Now()
	files, err := m.fingerprint(ctx, req)
	if err != nil {
		return nil, err
	}
	env, trust, err := m.resolve(ctx, req, progress)
	if err != nil {
		return nil, err
	}
	m.cache.put(ctx, req.key(), &cached[dray.Environment]{
		value: env, generation: generation, files: files, trust: trust, checkedAt: begun,
	})
	return env, nil
}

// lookupCached returns a cached environment that is still valid, or nil.
func (m *Manager) lookupCached(ctx context.Context, req request) dray.Environment {
	generation, live := m.engine.Generation()
	if !live || !m.cache.has(req.key()) {
		return nil
	}
	files, err := m.fingerprint(ctx, req)
	if err != nil {
		return nil
	}
	if entry := m.cache.get(ctx, req.key(), files, generation); entry != nil {
		return entry.value
	}
	return nil
}

// fingerprint changes with the configuration, the registrations, the recorded trust and the
// location of the repository.
func (m *Manager) fingerprint(ctx context.Context, req request) (string, error) {
	named, _ := m.named(req.name)
	var trust unix.Stat_t // zero if nothing was trusted yet
	_ = unix.Stat(filepath.Join(m.cfg.State, "trust.json"), &trust)
	text := fileTimes(fmt.Appendf(nil, "%d;", m.registered.generation.Load()), &trust)
	folder := cmp.Or(req.workspace, named.Workspace)
	if folder == "" {
		return string(text), nil
	}
	paths := []string{
		folder + "/.devcontainer/devcontainer.json", folder + "/.devcontainer.json", folder + "/.git",
	}
	switch {
	case filepath.IsAbs(named.Config):
		paths = append(paths, named.Config)
	case named.Config != "":
		paths = append(paths, filepath.Join(folder, named.Config))
	}
	stats, err := linux.UntrustedDir(folder).StatAll(ctx, paths)
	for i := range stats {
		text = fileTimes(text, &stats[i])
	}
	return string(text), err
}

// fileTimes appends what changes with a file. It includes the change time, which no process can
// set.
func fileTimes(text []byte, st *unix.Stat_t) []byte {
	return fmt.Appendf(text, "%d %d %d %d;", st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}

// labelCache holds the workspace folders of the engine's containers.
type labelCache struct {
	mu         sync.Mutex
	folders    map[string]bool
	generation uint64
	valid      bool
	retryAt    time.Time // until then an engine that failed is not asked again
}

// Bounds of a request to an engine that may be down: calls that run on the host must not block on
// it.
const (
	listTimeout = 2 * time.Second
	retryDelay  = 5 * time.Second
)

// Nearest returns the workspace of a directory: the nearest one from dir up to root. A directory
// that has a container, or that was used as a workspace, counts even if its configuration was
// removed (RT-02). Otherwise a tool in the container could send the next call to the host by
// removing a file that it sees through the mount.
func (m *Manager) Nearest(ctx context.Context, dir, root string) (folder string, ok bool) {
	if folder, ok := devcontainer.Nearest(ctx, dir, root); ok &&
		filepath.Clean(folder) == filepath.Clean(dir) {
		return folder, true // the usual case needs no engine
	}
	//nolint:contextcheck // other calls share the list and wait for it
	labelled := m.labelledFolders()
	return devcontainer.NearestWithKnown(ctx, dir, root, func(folder string) bool {
		return labelled[folder] || m.used(folder)
	})
}

// labelledFolders returns the workspaces of the engine's containers. They are listed again when a
// container has changed. If the engine does not answer, the last list is returned.
func (m *Manager) labelledFolders() map[string]bool {
	generation, live := m.engine.Generation()
	l := &m.labels
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.valid && live && l.generation == generation || time.Now().Before(l.retryAt) {
		return l.folders
	}
	ctx, cancel := context.WithTimeout(m.ups.ctx, listTimeout)
	defer cancel()
	list, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		m.log.Debug("containers not listed", zap.Error(err))
		l.retryAt = time.Now().Add(retryDelay)
		return l.folders
	}
	l.folders = make(map[string]bool, len(list))
	for _, c := range list {
		if folder := c.Label(devcontainer.LabelFolder); folder != "" {
			l.folders[filepath.Clean(folder)] = true
		}
	}
	l.generation, l.valid = generation, true
	return l.folders
}
