package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/validate"
)

// Registration is a container that dray did not make and that a caller gave a name.
type Registration struct {
	ID       string    `json:"id,omitzero" doc:"A full id or a name. Either id or label is required."`
	Label    string    `json:"label,omitzero" doc:"A label that one container has, key=value."`
	Mappings []Mapping `json:"mappings,omitempty" doc:"Mappings that precede those of its mounts."`
	User     string    `json:"user,omitzero" doc:"The user of calls. Default: the container's."`
	Folder   string    `json:"folder,omitzero" doc:"The working directory of calls, absolute."`
}

// Mapping maps a directory of the host to one of the container.
type Mapping struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

// Limits of registrations.
const (
	maxRegistered = 1000
	maxMappings   = 100
	maxTextField  = 4096 // bytes
)

// registrations are the registered containers. They are stored in the state directory.
type registrations struct {
	path       string
	generation atomic.Uint64 // changes with all

	mu  sync.RWMutex
	all map[string]Registration
}

// openRegistrations reads the registrations of earlier daemons. An unreadable file is logged and
// stays as it is until the next change.
func openRegistrations(state string, log *zap.Logger) *registrations {
	r := &registrations{
		path: filepath.Join(state, "containers.json"), all: map[string]Registration{},
	}
	text, err := os.ReadFile(r.path)
	if err == nil {
		err = json.Unmarshal(text, &r.all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.all = map[string]Registration{}
		log.Warn("registered containers not read", zap.String("path", r.path), zap.Error(err))
	}
	return r
}

func (r *registrations) get(name string) (reg Registration, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	reg, ok = r.all[name]
	return reg, ok
}

// change stores a changed copy of the registrations.
func (r *registrations) change(do func(all map[string]Registration) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.all)
	if err := do(all); err != nil {
		return err
	}
	text, err := json.Marshal(all, json.Deterministic(true))
	if err == nil {
		err = helper.ReplaceFile(r.path, text)
	}
	if err != nil {
		return fmt.Errorf("store the registered containers: %w", err)
	}
	r.all = all
	r.generation.Add(1)
	return nil
}

// named returns the container that the configuration or a registration gives a name.
func (r *resolver) named(name string) (n Named, ok bool) {
	if n, ok = r.cfg.Named[name]; ok {
		return n, true
	}
	reg, ok := r.registered.get(name)
	n = Named{ID: reg.ID, Label: reg.Label, User: reg.User, Folder: reg.Folder}
	for _, m := range reg.Mappings {
		n.Mappings = append(n.Mappings, dray.Mount{
			Host: m.Host, Container: m.Container, Configured: true,
		})
	}
	return n, ok
}

// names returns all names, sorted.
func (r *resolver) names() []string {
	r.registered.mu.RLock()
	defer r.registered.mu.RUnlock()
	names := slices.AppendSeq(slices.Collect(maps.Keys(r.cfg.Named)), maps.Keys(r.registered.all))
	slices.Sort(names)
	return slices.Compact(names)
}

// IsRegistered reports whether a container is registered under a name.
func (m *Manager) IsRegistered(name string) bool {
	_, ok := m.registered.get(name)
	return ok
}

// Register gives a container a name until Unregister, also after a restart (RT-12). The container
// need not exist yet. It fails with invalid_request, and with conflict if the name is configured or
// another container is registered under it.
func (m *Manager) Register(ctx context.Context, name string, reg Registration,
) (ContainerState, error) {
	if err := reg.check(name); err != nil {
		return ContainerState{}, err
	}
	if _, ok := m.cfg.Named[name]; ok {
		return ContainerState{}, configuredError(name)
	}
	err := m.registered.change(func(all map[string]Registration) error {
		if old, ok := all[name]; ok && !reflect.DeepEqual(old, reg) {
			return dray.Errorf(dray.CodeConflict, "another container is registered as %q", name).
				WithHint("use another name, or run `dray container rm %s` before", name)
		}
		if len(all) >= maxRegistered {
			return dray.Errorf(dray.CodeLimitExceeded, "%d containers are registered already", len(all)).
				WithHint("remove some with `dray container rm NAME`")
		}
		all[name] = reg
		return nil
	})
	if err != nil {
		return ContainerState{}, err
	}
	m.log.Info("container registered", zap.String("name", name), zap.String("id", reg.ID),
		zap.String("label", reg.Label))
	state, err := m.namedState(ctx, name, nil)
	return m.withBreaker(state), err
}

// Unregister removes a name that Register gave. The container stays. It fails with not_found, and
// with conflict for a configured name.
func (m *Manager) Unregister(name string) error {
	if _, ok := m.cfg.Named[name]; ok {
		return configuredError(name)
	}
	err := m.registered.change(func(all map[string]Registration) error {
		if _, ok := all[name]; !ok {
			return dray.Errorf(dray.CodeNotFound, "no container is registered as %q", name).
				WithHint("`dray container ls` lists all names")
		}
		delete(all, name)
		return nil
	})
	if err == nil {
		m.log.Info("container unregistered", zap.String("name", name))
	}
	return err
}

func configuredError(name string) error {
	return dray.Errorf(dray.CodeConflict, "container %q is configured", name).
		WithHint("change containers.%s in the configuration and restart the daemon", name)
}

// check applies the rules of the configuration key containers.
func (r Registration) check(name string) error {
	var v validate.Violations
	if validate.ContainerName(&v, "/name", name) == "" || name == string(dray.KindHost) {
		v.Add("/name", "%q cannot be the name of a container", validate.Quote(name))
	}
	validate.ContainerName(&v, "/id", r.ID)
	switch key, _, isLabel := strings.Cut(r.Label, "="); {
	case (r.ID == "") == (r.Label == ""):
		v.Add("/id", "either id or label is required")
	case r.Label != "" && (!isLabel || key == "" || !isLine(r.Label)):
		v.Add("/label", "%q is not a label: use key=value", validate.Quote(r.Label))
	}
	if !isLine(r.User) {
		v.Add("/user", "invalid user %q", validate.Quote(r.User))
	}
	if validate.AbsolutePath(&v, "/folder", r.Folder) != r.Folder {
		v.Add("/folder", "%q is not a clean path", validate.Quote(r.Folder))
	}
	r.checkMappings(&v)
	return v.Err()
}

func (r Registration) checkMappings(v *validate.Violations) {
	if len(r.Mappings) > maxMappings {
		v.Add("/mappings", "at most %d mappings are allowed", maxMappings)
		return
	}
	seen := map[string]bool{}
	for i, m := range r.Mappings {
		pointer := fmt.Sprintf("/mappings/%d", i)
		for _, path := range []string{m.Host, m.Container} {
			if path == "" || path == "/" || validate.AbsolutePath(v, pointer, path) != path {
				v.Add(pointer, "%q is not a clean absolute directory below /", validate.Quote(path))
			}
		}
		if m.Host != m.Container && (lexical.Contains(m.Container, m.Host) ||
			lexical.Contains(m.Host, m.Container)) {
			v.Add(pointer, "one of the two directories contains the other")
		}
		if seen[m.Container] {
			v.Add(pointer, "a second host directory for %q", validate.Quote(m.Container))
		}
		seen[m.Container] = true
	}
}

// isLine reports whether a text is one line of a reasonable length.
func isLine(s string) bool {
	return len(s) <= maxTextField && !strings.ContainsAny(s, "\x00\r\n")
}
