package devcontainer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// Input is what Resolve works from.
type Input struct {
	// Location is the workspace; the zero Location where none is known, and then the container's
	// labels alone count.
	Location  Location
	Container ContainerInfo
	// LocalEnv gives the values of ${localEnv:NAME}; nil gives none. For a workspace that is not
	// trusted it must give none.
	LocalEnv func(name string) (string, bool)
	// Git finds the top of the work tree; nil takes the workspace for it.
	Git GitFunc
}

// Probe says which shell the environment of a call is read from.
type Probe string

// The probes, as userEnvProbe names them.
const (
	ProbeNone                  Probe = "none"
	ProbeLoginShell            Probe = "loginShell"
	ProbeInteractiveShell      Probe = "interactiveShell"
	ProbeLoginInteractiveShell Probe = "loginInteractiveShell"
)

// ExecConfig is how a call runs in a container: what `devcontainer exec` would do (EX-07).
type ExecConfig struct {
	// User is passed to the engine's rules verbatim: a name or number, with or without a group.
	User string
	// WorkspaceFolder is the working folder of calls that name none; empty means the user's home
	// folder.
	WorkspaceFolder string
	// RemoteEnv goes over the probed environment. It may hold secrets of the host.
	RemoteEnv map[string]string
	Probe     Probe
	// ConfigHash names the configuration that this was made from, before any variable was replaced:
	// "sha256:" and hexadecimal digits.
	ConfigHash string
	// LocalEnvNames are the variables of the host that the above asks for, whether they were given or
	// not.
	LocalEnvNames []string
	// Compose says that the configuration is one of docker compose, and Service which of its services
	// is meant.
	Compose bool
	Service string
	// Mounts lead from host folders into the container: its bind mounts (PM-14).
	Mounts []dray.Mount
	// Merged is the merged configuration as `devcontainer read-configuration` prints it. It may hold
	// secrets of the host.
	Merged map[string]any
	// Warnings say what was done differently from what the configuration may expect.
	Warnings []string
}

// Resolve reads the configuration file and the container's labels and merges them. It starts
// nothing but git, and that only where the configuration does not name its folder. Errors:
// no_devcontainer, container_failed for a configuration that cannot be used.
func Resolve(ctx context.Context, in Input) (ExecConfig, error) {
	in.Location = in.Location.withLabelPaths(in.Container)
	r := resolver{Input: in}
	if in.Location != (Location{}) {
		var err error
		if r.file, err = readConfig(in.Location); err != nil {
			return ExecConfig{}, err
		}
	}
	if err := r.substituteFile(ctx); err != nil {
		return ExecConfig{}, broken(in.Location, "%w", err)
	}
	merged, err := r.mergeLabel()
	if err != nil {
		return ExecConfig{}, err
	}
	return r.result(merged)
}

// resolver is one Resolve on its way.
type resolver struct {
	Input
	file   configFile
	config entry      // the file with the host's variables replaced
	scope  localScope // what they were replaced by

	remoteUser any
	warnings   []string
}

// substituteFile replaces the host's variables in the configuration file and settles the workspace
// folder.
func (r *resolver) substituteFile(ctx context.Context) error {
	r.scope = localScope{env: r.LocalEnv, workspace: r.Location.Workspace, names: map[string]bool{}}
	if r.Location == (Location{}) {
		return nil
	}
	folder, err := r.folder(ctx)
	if err != nil {
		return err
	}
	if err := r.scope.inFolder(folder); err != nil {
		return err
	}
	if r.config, err = substitute(r.file.values, r.scope.replace); err != nil {
		return err
	}
	// An empty workspaceFolder does not count above, but does so from here on, and means the home
	// folder.
	if folder, ok := r.config["workspaceFolder"].(string); ok {
		r.scope.folder = folder
	}
	return nil
}

// folder is the workspace folder before its own variables are replaced.
func (r *resolver) folder(ctx context.Context) (string, error) {
	named, isText := r.file.values["workspaceFolder"].(string)
	switch {
	case !isText && r.file.values["workspaceFolder"] != nil:
		return "", fmt.Errorf("workspaceFolder is not a string")
	case named != "":
		return named, nil
	case isCompose(r.file.values):
		return "/", nil
	}
	return defaultFolder(mountRoot(ctx, r.Git, r.Location.Workspace), r.Location.Workspace), nil
}

// mergeLabel merges the entries of the container's label with the configuration file and replaces
// the container's variables.
func (r *resolver) mergeLabel() (entry, error) {
	label, err := parseMetadata(cmp.Or(r.Container.Labels[LabelMetadata], "[]"))
	if err != nil {
		r.warn("the container's label %s is ignored: %v", LabelMetadata, err)
	}
	if err := r.substituteLabel(label); err != nil {
		return nil, broken(Location{}, "%w", err)
	}
	hasLabel, hasIDLabels := r.Container.Labels[LabelMetadata] != "", r.Container.Labels[LabelFolder] != ""
	merged := merge(r.config, metadataEntries(label, r.config, hasLabel, hasIDLabels))
	r.remoteUser = merged["remoteUser"] // the container's variables do not count in it
	merged, err = substituteAll(merged, devcontainerIDReplacer(r.Location.idLabels(r.Container)),
		containerReplacer(r.Container.Env))
	if err != nil {
		return nil, broken(r.Location, "%w", err)
	}
	return merged, nil
}

// substituteLabel replaces the host's variables in the label's entries, in place. The label comes
// from the image, so it gets no variable that the workspace's own configuration does not use as
// well: those nobody agreed to.
func (r *resolver) substituteLabel(label []entry) error {
	agreed := r.scope.names
	refused := map[string]bool{}
	scope := r.scope
	scope.names = nil
	scope.env = func(name string) (string, bool) {
		if r.scope.env == nil {
			return "", false
		}
		if !agreed[name] {
			refused[name] = true
			return "", false
		}
		return r.scope.env(name)
	}
	for i := range label {
		var err error
		if label[i], err = substitute(label[i], scope.replace); err != nil {
			return err
		}
	}
	for _, name := range sortedNames(refused) {
		r.warn("the container's label asks for the host's variable %s, which the workspace's configuration does not use: it is not given", name)
	}
	return nil
}

// result picks what a call needs from the merged configuration.
func (r *resolver) result(merged entry) (ExecConfig, error) {
	user, err := r.user()
	if err != nil {
		return ExecConfig{}, err
	}
	service, _ := r.config["service"].(string)
	out := ExecConfig{
		User: user, WorkspaceFolder: r.scope.folder, RemoteEnv: r.remoteEnv(merged), Probe: r.probe(merged),
		ConfigHash: r.hash(), LocalEnvNames: r.localEnvNames(), Compose: isCompose(r.file.values), Service: service,
		Mounts: bindMounts(r.Container.Mounts), Merged: merged,
	}
	slices.Sort(r.warnings) // objects have no order
	out.Warnings = r.warnings
	return out, nil
}

// user is the last remoteUser, else the container's own.
func (r *resolver) user() (string, error) {
	switch user := r.remoteUser.(type) {
	case string:
		return user, nil
	case nil:
		return cmp.Or(r.Container.User, "root"), nil
	}
	return "", broken(r.Location, "remoteUser is not a string")
}

func (r *resolver) probe(merged entry) Probe {
	value := merged["userEnvProbe"]
	if !isTruthy(value) {
		return ProbeLoginInteractiveShell
	}
	text, _ := value.(string)
	switch probe := Probe(text); probe {
	case ProbeNone, ProbeLoginShell, ProbeInteractiveShell, ProbeLoginInteractiveShell:
		return probe
	}
	r.warn("userEnvProbe %.40q is none of none, loginShell, interactiveShell, loginInteractiveShell: no shell is probed", fmt.Sprint(value))
	return ProbeNone
}

// hash covers what was read: the file and the label.
func (r *resolver) hash() string {
	h := sha256.New()
	// a hash never fails
	_, _ = fmt.Fprintf(h, "dray config 1\n%d\n%s%s", len(r.file.raw), r.file.raw,
		r.Container.Labels[LabelMetadata])
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// localEnvNames looks at the raw properties that a call depends on.
func (r *resolver) localEnvNames() []string {
	names := map[string]bool{}
	sources, _ := parseMetadata(cmp.Or(r.Container.Labels[LabelMetadata], "[]"))
	for _, e := range append(sources, r.file.values) {
		for _, property := range []string{"remoteUser", "userEnvProbe", "remoteEnv"} {
			collectLocalEnv(e[property], names)
		}
	}
	collectLocalEnv(r.file.values["workspaceFolder"], names)
	return sortedNames(names)
}

// collectLocalEnv adds the variables of the host that a value uses.
func collectLocalEnv(v any, names map[string]bool) {
	scope := localScope{names: names}
	s := substitution{replace: scope.replace}
	_, _ = s.value(v) // what fails was met where it is used
}

func (r *resolver) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// remoteEnv gives the merged remoteEnv as text. Names and values that no environment can hold are
// left out.
func (r *resolver) remoteEnv(merged entry) map[string]string {
	values, _ := merged["remoteEnv"].(entry)
	env := make(map[string]string, len(values))
	for name, value := range values {
		text := textOf(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(text, "\x00") {
			r.warn("the variable %.60q of remoteEnv is left out: its name or value cannot be in an environment", name)
			continue
		}
		env[name] = text
	}
	return env
}

// textOf writes a JSON value as JavaScript turns it into a string, which is what ends up in the
// environment.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return numberText(v)
	case bool:
		if v {
			return "true"
		}
		return "false"
	case entry:
		return "[object Object]"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			if v[i] != nil {
				parts[i] = textOf(v[i])
			}
		}
		return strings.Join(parts, ",")
	}
	return "null"
}

// numberText writes a number as ECMAScript does, which encoding/json follows but for the infinite
// and the negative zero.
func numberText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0"
	}
	text, err := json.Marshal(f)
	if err != nil {
		return "NaN"
	}
	return string(bytes.TrimSpace(text))
}

// bindMounts are the mounts whose source is a folder of the host. A source that leads through a
// link counts under its real name too, for a caller may know the workspace by either.
func bindMounts(mounts []MountInfo) []dray.Mount {
	var out []dray.Mount
	for _, m := range mounts {
		if m.Type != "bind" || !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Destination) {
			continue
		}
		mount := dray.Mount{Host: filepath.Clean(m.Source), Container: filepath.Clean(m.Destination)}
		out = append(out, mount)
		if resolved := realPath(mount.Host); resolved != mount.Host {
			out = append(out, dray.Mount{Host: resolved, Container: mount.Container})
		}
	}
	return out
}
