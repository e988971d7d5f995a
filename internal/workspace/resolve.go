package workspace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// resolve finds the container, brings it up where it may, and reads how calls run in it.
func (m *Manager) resolve(ctx context.Context, req request,
	progress func(phase, message string),
) (dray.Environment, devcontainer.TrustFiles, error) {
	loc, c, err := m.find(ctx, req, progress)
	if err != nil {
		return nil, devcontainer.TrustFiles{}, err
	}
	if loc.Workspace != "" {
		m.remember(loc.Workspace)
	}
	target, basis, err := m.environmentSpec(ctx, loc, c, req)
	if err != nil {
		return nil, basis, err
	}
	env, err := m.engine.Environment(ctx, target)
	return env, basis, err
}

// find gives the workspace, if there is one, and the running container.
func (m *Manager) find(ctx context.Context, req request,
	progress func(phase, message string),
) (devcontainer.Location, container.Container, error) {
	named, configured := m.cfg.Named[req.name]
	loc, err := m.locate(req, named)
	if err != nil {
		return loc, container.Container{}, err
	}
	if req.name == "" || (configured && named.Workspace != "") {
		c, err := m.ensureRunning(ctx, loc, progress)
		if err == nil {
			c, err = m.ofService(ctx, c, req.name, named.Service)
		}
		return loc, c, err
	}
	ref := req.name
	switch {
	case configured && named.Label != "":
		ref, err = m.labelled(ctx, req.name, named.Label)
	case configured:
		ref = named.ID
	}
	if err != nil {
		return loc, container.Container{}, err
	}
	c, err := m.engine.Inspect(ctx, ref)
	if err == nil && c.ID != ref && c.Name != ref {
		// the engine takes the beginning of an id too
		err = dray.Errorf(dray.CodeContainerNotFound, "there is no container %q", ref).
			WithHint("give the container's full id or its name, as `docker ps --no-trunc` shows them")
	}
	if err == nil && loc.Workspace != "" && (!loc.Owns(c.ContainerInfo) || labelledByImage(c)) {
		err = dray.Errorf(dray.CodeRouteConflict, "container %s does not belong to workspace %s", c.Name,
			loc.Workspace).
			WithHint("leave one of the two out, or name the workspace's own container")
	}
	return loc, c, err
}

// locate finds the configuration that a request is about; a request without a workspace is about
// none.
func (m *Manager) locate(req request, named Named) (devcontainer.Location, error) {
	folder := req.workspace
	if folder == "" {
		folder = named.Workspace
	}
	if named.Workspace != "" && !sameFolder(folder, named.Workspace) {
		return devcontainer.Location{}, dray.Errorf(dray.CodeRouteConflict,
			"container %s belongs to workspace %s, not to %s", req.name, named.Workspace, folder).
			WithHint("leave one of the two out, or name the workspace's own container")
	}
	if folder == "" {
		return devcontainer.Location{}, nil
	}
	return devcontainer.Locate(folder, named.Config)
}

// sameFolder says whether two paths lead to one folder.
func sameFolder(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// ensureRunning gives the running container of a workspace, after bringing it up if there is none.
func (m *Manager) ensureRunning(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (container.Container, error) {
	c, found, err := m.findByLabels(ctx, loc)
	if err != nil {
		return c, err
	}
	last, failed, err := devcontainer.NewUpAttemptStore(m.cfg.State).Last(loc)
	if err != nil {
		return c, err
	}
	// its lifecycle commands have not all succeeded, or are still running
	halfMade := failed && last.Incomplete(c.ContainerInfo)
	if found && c.Running() && !halfMade {
		return c, nil
	}
	if found && c.Paused {
		return c, dray.Errorf(dray.CodeContainerUnavailable, "container %s is paused", c.Name).WithHint("run `docker unpause %s`", c.Name)
	}
	id, err := m.up(ctx, loc, progress)
	if err != nil {
		return c, err
	}
	return m.engine.Inspect(ctx, id)
}

// findByLabels finds the container of a workspace by its labels, running or not.
func (m *Manager) findByLabels(ctx context.Context, loc devcontainer.Location) (container.Container,
	bool, error,
) {
	list, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return container.Container{}, false, err
	}
	for {
		info, found := loc.Match(list)
		if !found {
			return container.Container{}, false, nil
		}
		c, err := m.engine.Inspect(ctx, info.ID)
		if dray.CodeOf(err) == dray.CodeContainerNotFound {
			return container.Container{}, false, nil // it went in this moment
		}
		if err != nil || !labelledByImage(c) {
			return c, err == nil, err
		}
		m.log.Warn("container claims a workspace by its image, passed over",
			zap.String("container", c.Name), zap.String("workspace", loc.Workspace))
		list = slices.DeleteFunc(list,
			func(other devcontainer.ContainerInfo) bool { return other.ID == info.ID })
	}
}

// labelledByImage says that it was the image, not who made the container, that named the workspace.
// Anybody can build an image with any label, and its container would get the calls of that
// workspace, with what is secret in them.
func labelledByImage(c container.Container) bool {
	folder := c.Labels[devcontainer.LabelFolder]
	return folder != "" && c.ImageLabels[devcontainer.LabelFolder] == folder
}

// labelled gives the one container with a configured label. A running one goes before those that
// are not.
func (m *Manager) labelled(ctx context.Context, name, label string) (string, error) {
	key, value, _ := strings.Cut(label, "=")
	list, err := m.engine.List(ctx, key, value)
	if err != nil {
		return "", err
	}
	var all, live []string
	for _, c := range list {
		all = append(all, c.ID)
		if c.Status == "running" {
			live = append(live, c.ID)
		}
	}
	if len(live) > 0 {
		all = live
	}
	switch len(all) {
	case 1:
		return all[0], nil
	case 0:
		return "", dray.Errorf(dray.CodeContainerNotFound,
			"no container has the label %s (containers.%s)", label, name).
			WithHint("start the container, or correct the label in the configuration")
	default:
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"%d containers have the label %s (containers.%s)", len(all), label, name).
			WithHint("use a label that one container alone has, or its id")
	}
}

// environmentSpec reads how calls run in a container. The host's variables are given to trusted
// workspaces alone; the basis is that of the trust.
func (m *Manager) environmentSpec(ctx context.Context, loc devcontainer.Location,
	c container.Container, req request,
) (container.EnvironmentSpec, devcontainer.TrustFiles, error) {
	trusted, basis := false, devcontainer.TrustFiles{}
	if loc.Workspace != "" {
		trusted, basis, _ = m.trust.IsTrusted(ctx, loc) // what cannot be judged is not trusted
	}
	in := devcontainer.Input{Location: loc, Container: c.ContainerInfo, Git: Git(m.pool)}
	if trusted {
		in.LocalEnv = m.localEnv(req.localEnv)
	}
	r, err := devcontainer.Resolve(ctx, in)
	if err != nil {
		return container.EnvironmentSpec{}, basis, err
	}
	warnings := r.Warnings
	if !trusted && len(r.LocalEnvNames) > 0 {
		warnings = append(warnings,
			"the workspace is not trusted, so these variables of the host stay empty: "+strings.Join(r.LocalEnvNames, ", "))
	}
	return container.EnvironmentSpec{
		Container: c, User: r.User, WorkspaceFolder: r.WorkspaceFolder, RemoteEnv: r.RemoteEnv, Probe: string(r.Probe), ConfigHash: r.ConfigHash,
		Mounts: m.mounts(req, c, r.Mounts), Warnings: warnings,
	}, basis, nil
}

// mounts are the configured mappings, which go first, the container's bind mounts, and what hides
// parts of those: volumes and the like, which no host folder leads to.
func (m *Manager) mounts(req request, c container.Container, binds []dray.Mount) []dray.Mount {
	all := append(slices.Clone(m.mappings(req, c)), binds...)
	for _, mount := range c.Mounts {
		if mount.Type != "bind" {
			all = append(all, dray.Mount{Container: mount.Destination})
		}
	}
	return all
}

// localEnv gives a variable of the host: the caller's value, else the configured one.
func (m *Manager) localEnv(callers map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if v, ok := callers[name]; ok {
			return v, true
		}
		v, ok := m.cfg.LocalEnv[name]
		return v, ok
	}
}

func (m *Manager) remember(folder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usedFolders[folder] = true
}

// Labels that docker compose puts on its containers, both the program of version 1 and the plugin.
const (
	labelProject = "com.docker.compose.project"
	labelService = "com.docker.compose.service"
	labelNumber  = "com.docker.compose.container-number"
	labelOneOff  = "com.docker.compose.oneoff"
)

// ofService gives the container of another service in the compose project of a workspace's
// container; without a service it is that container itself. `up` starts the services that the
// configuration names, so one that is not there is not started here.
func (m *Manager) ofService(ctx context.Context, c container.Container, name,
	service string,
) (container.Container, error) {
	if service == "" || c.Labels[labelService] == service {
		return c, nil
	}
	project := c.Labels[labelProject]
	if project == "" {
		return c, dray.Errorf(dray.CodeContainerNotFound,
			"container %s is of no compose project, so it has no service %q", c.Name, service).
			WithHint("remove containers.%s.service, or use dockerComposeFile in the workspace's devcontainer.json", name)
	}
	list, err := m.engine.List(ctx, labelProject, project)
	if err != nil {
		return c, err
	}
	found, ok := serviceOf(list, service)
	if !ok {
		return c, dray.Errorf(dray.CodeContainerNotFound,
			"the compose project %s has no container of service %q", project, service).
			WithHint("correct containers.%s.service, or add the service to runServices in devcontainer.json and bring the workspace up", name)
	}
	return m.engine.Inspect(ctx, found.ID)
}

// serviceOf chooses among a project's containers: running before others, then the lowest number of
// the service. One-off runs do not count.
func serviceOf(project []devcontainer.ContainerInfo, service string) (devcontainer.ContainerInfo,
	bool,
) {
	var of []devcontainer.ContainerInfo
	for _, c := range project {
		if c.Labels[labelService] == service && c.Labels[labelOneOff] != "True" &&
			c.Status != "removing" {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return devcontainer.ContainerInfo{}, false
	}
	rank := func(c devcontainer.ContainerInfo) (stopped, number int) {
		if c.Status != "running" {
			stopped = 1
		}
		number, _ = strconv.Atoi(c.Labels[labelNumber]) // what is none counts as the first
		return stopped, number
	}
	return slices.MinFunc(of, func(a, b devcontainer.ContainerInfo) int {
		aStopped, aNumber := rank(a)
		bStopped, bNumber := rank(b)
		return cmp.Or(cmp.Compare(aStopped, bStopped), cmp.Compare(aNumber, bNumber))
	}), true
}

// maxGit bounds what git may say.
const maxGit = 64 << 10

// Git gives the function that internal/devcontainer asks git with. It runs on the host, under
// supervision, with the variables that git itself needs: its answers must be those that the
// reference gets.
func Git(pool *process.Pool) devcontainer.GitFunc {
	return func(ctx context.Context, dir string, args ...string) (string, error) {
		return runGit(ctx, pool, dir, args)
	}
}

func runGit(ctx context.Context, pool *process.Pool, dir string, args []string) (string, error) {
	proc, err := pool.Start(ctx, process.Spec{
		Argv: append([]string{"git"}, args...), Dir: dir,
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GIT_TERMINAL_PROMPT=0",
			"LC_ALL=C",
		},
	})
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { proc.Stop(0) })
	defer stop()
	_ = proc.Stdin().Close()
	// ends with the process, which is waited for below
	go func() { _, _ = io.Copy(io.Discard, proc.Stderr()) }()
	out, _ := io.ReadAll(io.LimitReader(proc.Stdout(), maxGit))
	_, _ = io.Copy(io.Discard, proc.Stdout())
	exit, err := proc.Wait()
	if err == nil && (exit.Code != 0 || exit.Signal != 0) {
		err = errors.New("git says that this is no work tree")
	}
	return string(out), err
}
