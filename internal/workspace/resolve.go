package workspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/linux"
)

// resolver finds containers, records their states and resolves how calls run in them. It changes no
// container.
type resolver struct {
	cfg      Config
	engine   Engine
	trust    *trust.Store
	log      *zap.Logger
	tracker  *tracker
	changing *locationLocks

	registered *registrations
}

func newResolver(cfg Config, engine Engine, store *trust.Store, log *zap.Logger,
) *resolver {
	return &resolver{
		cfg: cfg, engine: engine, trust: store, log: log,
		tracker:  &tracker{record: cfg.Record, states: map[devcontainer.Location]State{}},
		changing: &locationLocks{locks: map[devcontainer.Location]chan struct{}{}},

		registered: openRegistrations(cfg.State, log),
	}
}

// byWorkspace reports whether a request is for the container of a workspace, which may be brought
// up. Any other is for an existing container.
func (r *resolver) byWorkspace(req request) bool {
	named, _ := r.named(req.name)
	return req.name == "" || named.Workspace != ""
}

// locate returns the configuration that a request is for, the zero Location without a workspace.
func (r *resolver) locate(ctx context.Context, req request) (devcontainer.Location, error) {
	named, _ := r.named(req.name)
	folder := cmp.Or(req.workspace, named.Workspace)
	if named.Workspace != "" && !sameFolder(ctx, folder, named.Workspace) {
		return devcontainer.Location{}, dray.Errorf(dray.CodeRouteConflict,
			"container %s belongs to workspace %s, not to %s", req.name, named.Workspace, folder).
			WithHint("omit one of the two, or name the container of the workspace")
	}
	if folder == "" {
		return devcontainer.Location{}, nil
	}
	return devcontainer.Locate(ctx, folder, named.Config)
}

// sameFolder reports whether two paths lead to the same directory.
func sameFolder(ctx context.Context, a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err1 := linux.UntrustedDir(a).StatDir(ctx)
	y, err2 := linux.UntrustedDir(b).StatDir(ctx)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// locationOf returns the first configuration of a folder: its state is that of the workspace.
func (r *resolver) locationOf(ctx context.Context, folder string) (devcontainer.Location, error) {
	all, err := r.locationsOf(ctx, folder)
	if err != nil {
		return devcontainer.Location{}, err
	}
	return all[0], nil
}

// locationsOf returns the configurations of a folder: those that configured containers name, by
// their names, else that in the default locations. There is at least one.
func (r *resolver) locationsOf(ctx context.Context, folder string,
) (all []devcontainer.Location, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Named)) {
		n := r.cfg.Named[name]
		if n.Workspace != folder || n.Config == "" {
			continue
		}
		loc, err := devcontainer.Locate(ctx, folder, n.Config)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, loc) { // several services of one project
			all = append(all, loc)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	loc, err := devcontainer.Locate(ctx, folder, "")
	if err != nil {
		return nil, fmt.Errorf("find the configuration of the workspace: %w", err)
	}
	return []devcontainer.Location{loc}, nil
}

// findNamed returns the container with the name, id or label of a request. If the request has a
// workspace too, the container must belong to it.
func (r *resolver) findNamed(ctx context.Context, req request, loc devcontainer.Location,
) (devcontainer.ContainerInfo, error) {
	ref := req.name
	if named, ok := r.named(req.name); ok {
		ref = named.ID
		if named.Label != "" {
			var err error
			if ref, err = r.findLabelled(ctx, req.name, named.Label); err != nil {
				return devcontainer.ContainerInfo{}, err
			}
		}
	}
	c, err := r.engine.Inspect(ctx, ref)
	switch {
	case err != nil:
		return c, err
	case c.ID != ref && c.Name != ref: // the engine accepts a prefix of an id
		return c, dray.Errorf(dray.CodeContainerNotFound, "no such container: %q", ref).
			WithHint("use the full id or the name of the container, as `docker ps --no-trunc` shows them")
	case loc.Workspace != "" && !loc.Owns(ctx, c):
		return c, dray.Errorf(dray.CodeRouteConflict, "container %s does not belong to workspace %s",
			c.Name, loc.Workspace).
			WithHint("omit one of the two, or name the container of the workspace")
	}
	return c, nil
}

// findByLabels returns the container of a workspace by its labels, running or not.
func (r *resolver) findByLabels(ctx context.Context, loc devcontainer.Location,
) (devcontainer.ContainerInfo, bool, error) {
	list, err := r.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return devcontainer.ContainerInfo{}, false, err
	}
	match, found := loc.Match(ctx, list)
	if !found {
		return devcontainer.ContainerInfo{}, false, nil
	}
	c, err := r.engine.Inspect(ctx, match.ID)
	if dray.CodeOf(err) == dray.CodeContainerNotFound {
		return devcontainer.ContainerInfo{}, false, nil // removed after it was listed
	}
	return c, err == nil, err
}

// checkImpersonation fails if the reference CLI could take a container for that of a workspace
// because its image has the label. The CLI compares only the labels of containers.
func (r *resolver) checkImpersonation(ctx context.Context, loc devcontainer.Location) error {
	list, err := r.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return err
	}
	if c, ok := loc.Impersonated(ctx, list); ok {
		return impersonationError(c, loc)
	}
	return nil
}

func impersonationError(c devcontainer.ContainerInfo, loc devcontainer.Location) error {
	return dray.Errorf(dray.CodeContainerUnavailable,
		"container %s belongs to workspace %s only by a label of its image, which may be anybody's",
		c.Name, loc.Workspace).
		WithHint("run `docker rm -f %s`; if your build sets the label %s in the image, remove it there",
			c.Name, devcontainer.LabelFolder)
}

// findLabelled returns the id of the one container with a configured label. A running one is
// preferred.
func (r *resolver) findLabelled(ctx context.Context, name, label string) (string, error) {
	key, value, _ := strings.Cut(label, "=")
	list, err := r.engine.List(ctx, key, value)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list,
		func(c devcontainer.ContainerInfo) bool { return !c.HasLabel(key, value) })
	running := slices.DeleteFunc(slices.Clone(list),
		func(c devcontainer.ContainerInfo) bool { return !c.Running() })
	if len(running) > 0 {
		list = running
	}
	switch len(list) {
	case 1:
		return list[0].ID, nil
	case 0:
		return "", dray.Errorf(dray.CodeContainerNotFound,
			"no container was given the label %s (containers.%s)", label, name).
			WithHint("start the container with `--label`, or correct the label in the configuration; " +
				"a label that its image has too does not count")
	default:
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"%d containers have the label %s (containers.%s)", len(list), label, name).
			WithHint("use a label that only one container has, or an id")
	}
}

// findService returns the container of the service that containers.NAME.service configures, in the
// compose project of the workspace's container c. Without a service it returns c. A service that
// `up` did not start is not started.
func (r *resolver) findService(ctx context.Context, c devcontainer.ContainerInfo, name string,
) (devcontainer.ContainerInfo, error) {
	named, _ := r.named(name)
	service, project := named.Service, c.Label(devcontainer.LabelComposeProject)
	if service == "" || c.Label(devcontainer.LabelComposeService) == service {
		return c, nil
	}
	if project == "" {
		return c, dray.Errorf(dray.CodeContainerNotFound,
			"container %s has no compose project, so it has no service %q", c.Name, service).
			WithHint("remove containers.%s.service, or use dockerComposeFile in devcontainer.json", name)
	}
	list, err := r.engine.List(ctx, devcontainer.LabelComposeProject, project)
	if err != nil {
		return c, err
	}
	found, ok := selectService(list, project, service)
	if !ok {
		return c, dray.Errorf(dray.CodeContainerNotFound,
			"the compose project %s has no container of service %q", project, service).
			WithHint("correct containers.%s.service, or add the service to runServices in "+
				"devcontainer.json and run `dray workspace up`", name)
	}
	return r.engine.Inspect(ctx, found.ID)
}

// selectService selects a container of a service of a project: running ones first, then the lowest
// number. One-off containers do not count, nor those that docker compose did not create.
func selectService(list []devcontainer.ContainerInfo, project, service string,
) (devcontainer.ContainerInfo, bool) {
	of := slices.DeleteFunc(slices.Clone(list), func(c devcontainer.ContainerInfo) bool {
		return c.Label(devcontainer.LabelComposeProject) != project ||
			c.Label(devcontainer.LabelComposeService) != service || composeNumber(c) == 0 ||
			c.Labels[devcontainer.LabelComposeOneOff] == "True" || c.Status == "removing"
	})
	if len(of) == 0 {
		return devcontainer.ContainerInfo{}, false
	}
	return slices.MinFunc(of, func(a, b devcontainer.ContainerInfo) int {
		if a.Running() != b.Running() {
			if a.Running() {
				return -1
			}
			return 1
		}
		return cmp.Compare(composeNumber(a), composeNumber(b))
	}), true
}

// composeNumber returns the number of a container in its service, 0 if docker compose gave it none.
func composeNumber(c devcontainer.ContainerInfo) uint64 {
	number, err := strconv.ParseUint(c.Label(devcontainer.LabelComposeNumber), 10, 32)
	if err != nil {
		return 0
	}
	return number
}

// spec resolves how calls run in a container, and returns the trust inputs that the result depends
// on. Variables of the host are given only to trusted workspaces.
func (r *resolver) spec(ctx context.Context, loc devcontainer.Location,
	c devcontainer.ContainerInfo, req request,
) (agent.Spec, trust.Files, error) {
	trusted, trust := false, trust.Files{}
	if loc.Workspace != "" {
		trusted, trust, _ = r.trust.IsTrusted(ctx, loc) // an error means untrusted
	}
	in := devcontainer.Input{Location: loc, Container: c}
	if trusted {
		in.LocalEnv = r.localEnv(req.localEnv)
	}
	res, err := devcontainer.Resolve(ctx, in)
	if err == nil && !trusted {
		err = r.checkUser(ctx, in, res.User)
	}
	if err != nil {
		return agent.Spec{}, trust, err
	}
	warnings := res.Warnings
	if !trusted && len(res.LocalEnvNames) > 0 {
		warnings = append(warnings, "the workspace is not trusted, so these variables of the host are "+
			"empty: "+strings.Join(res.LocalEnvNames, ", "))
	}
	if res.User == "root" && c.User == "" {
		res.User = "" // the engine's default, uid 0, which needs no name in /etc/passwd
	}
	named, _ := r.named(req.name)
	return agent.Spec{
		User: cmp.Or(named.User, res.User), RemoteEnv: res.RemoteEnv,
		Probe: string(res.Probe), ConfigHash: res.ConfigHash, Mounts: r.mounts(ctx, req, c, res.Mounts),
		WorkspaceFolder: cmp.Or(named.Folder, res.WorkspaceFolder), Warnings: warnings,
	}, trust, nil
}

// checkUser fails if the configuration of an untrusted workspace has another user for calls than
// the one that the container was created with: a tool can write to that file. The label of a
// container has the configuration that it was created with; without a label that is unknown.
func (r *resolver) checkUser(ctx context.Context, in devcontainer.Input, user string) error {
	loc := in.Location
	if loc.Workspace == "" || in.Container.Labels[devcontainer.LabelMetadata] == "" {
		return nil
	}
	in.Location = devcontainer.Location{}
	created, err := devcontainer.Resolve(ctx, in)
	if err != nil || created.User == user {
		return err
	}
	return dray.Errorf(dray.CodeWorkspaceUntrusted,
		"the configuration of %s is not trusted, and calls would run as %.60q; "+
			"container %s was created for %.60q",
		loc.Workspace, user, in.Container.Name, created.User).
		WithHint("look at it with `dray workspace trust --show %s`, and trust it with "+
			"`dray workspace trust %s`", loc.Workspace, loc.Workspace)
}

// mounts returns the configured mappings, then the bind mounts of the container, then its other
// mounts, which hide parts of those and have no path on the host.
func (r *resolver) mounts(ctx context.Context, req request, c devcontainer.ContainerInfo,
	binds []dray.Mount,
) []dray.Mount {
	all := append(slices.Clone(r.mappings(ctx, req, c)), binds...)
	for _, mount := range c.Mounts {
		if mount.Type != "bind" {
			all = append(all, dray.Mount{Container: mount.Destination})
		}
	}
	return all
}

// mappings returns the configured mappings of a container. They apply however a call names the
// container. If several configured names match it, the name in the call alone counts.
func (r *resolver) mappings(ctx context.Context, req request, c devcontainer.ContainerInfo,
) []dray.Mount {
	if named, ok := r.named(req.name); ok {
		return named.Mappings
	}
	var all []dray.Mount
	for _, name := range r.names() {
		if named, _ := r.named(name); len(named.Mappings) > 0 && r.matchesNamed(ctx, named, c) {
			all = append(all, named.Mappings...)
		}
	}
	return all
}

// matchesNamed reports whether a configured name is that of a container.
func (r *resolver) matchesNamed(ctx context.Context, named Named, c devcontainer.ContainerInfo,
) bool {
	switch {
	case named.Workspace != "":
		loc, err := devcontainer.Locate(ctx, named.Workspace, named.Config)
		if err != nil ||
			named.Service != "" && c.Label(devcontainer.LabelComposeService) != named.Service {
			return false
		}
		_, matches := loc.Match(ctx, []devcontainer.ContainerInfo{c})
		return matches
	case named.Label != "":
		key, value, _ := strings.Cut(named.Label, "=")
		return c.HasLabel(key, value)
	default:
		return named.ID == c.ID || named.ID == c.Name
	}
}

// localEnv returns the lookup of host variables: the caller's value, else the configured one.
func (r *resolver) localEnv(callers map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if v, ok := callers[name]; ok {
			return v, true
		}
		v, ok := r.cfg.LocalEnv[name]
		return v, ok
	}
}
