package devcontainer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/worktree"
)

// Input is the input of Resolve.
type Input struct {
	// Location is the workspace. If it is zero, only the container's labels count.
	Location  Location
	Container ContainerInfo
	// LocalEnv returns the values of ${localEnv:NAME}; nil is an empty environment. It must be empty
	// for a workspace that is not trusted.
	LocalEnv func(name string) (string, bool)
}

// Probe is the shell that the environment of a call is read from.
type Probe string

// The values of userEnvProbe.
const (
	ProbeNone                  Probe = "none"
	ProbeLoginShell            Probe = "loginShell"
	ProbeInteractiveShell      Probe = "interactiveShell"
	ProbeLoginInteractiveShell Probe = "loginInteractiveShell"
)

// ExecConfig is how a call runs in a container, as by `devcontainer exec` (EX-07).
type ExecConfig struct {
	// User is a name or number with or without a group, as the engine parses it.
	User string
	// WorkspaceFolder is the default working directory; empty means the user's home directory.
	WorkspaceFolder string
	// RemoteEnv overrides the probed environment. It may contain secrets of the host.
	RemoteEnv map[string]string
	Probe     Probe
	// ConfigHash is the hash of the configuration before variables were replaced: "sha256:" and
	// hexadecimal digits.
	ConfigHash string
	// LocalEnvNames are the variables of the host that the above uses, set or not.
	LocalEnvNames []string
	// Mounts are the container's bind mounts (PM-14).
	Mounts []dray.Mount
	// Warnings state what was done differently from what the configuration says.
	Warnings []string
}

// Resolve reads the configuration file and the container's labels and merges them. It fails
// with no_devcontainer, or with container_failed for an invalid configuration.
func Resolve(ctx context.Context, in Input) (ExecConfig, error) {
	in.Location = in.Location.withLabelPaths(ctx, in.Container)
	r := resolver{Input: in}
	if in.Location != (Location{}) {
		var err error
		if r.file, err = ReadConfig(ctx, in.Location); err != nil {
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

type resolver struct {
	Input
	file   ConfigFile
	config entry      // the file with the host's variables replaced
	scope  localScope // their values

	remoteUser any
	warnings   []string
}

// substituteFile replaces the host's variables in the configuration file and sets the workspace
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
	if r.config, err = substitute(r.file.Values, r.scope.replace); err != nil {
		return err
	}
	// An empty workspaceFolder is ignored above. From here on it means the home directory.
	if folder, ok := r.config["workspaceFolder"].(string); ok {
		r.scope.folder = folder
	}
	return nil
}

// folder returns the workspace folder before its variables are replaced.
func (r *resolver) folder(ctx context.Context) (string, error) {
	named, isText := r.file.Values["workspaceFolder"].(string)
	switch {
	case !isText && r.file.Values["workspaceFolder"] != nil:
		return "", fmt.Errorf("workspaceFolder is not a string")
	case named != "":
		return named, nil
	case r.file.IsCompose():
		return "/", nil
	}
	root, err := worktree.Root(ctx, r.Location.Workspace)
	return defaultFolder(root, r.Location.Workspace), err
}

// mergeLabel merges the properties that a call depends on over the entries of the container's label
// and the configuration file, and replaces the container's variables in them.
func (r *resolver) mergeLabel() (entry, error) {
	label, err := parseMetadata(cmp.Or(r.Container.Labels[LabelMetadata], "[]"))
	if err != nil {
		r.warn("the container's label %s is ignored: %v", LabelMetadata, err)
	}
	if err := r.substituteLabel(label); err != nil {
		return nil, broken(Location{}, "%w", err)
	}
	entries := slices.Concat(label, []entry{r.config})
	merged := entry{
		"remoteUser":   lastTruthy(entries, "remoteUser"),
		"userEnvProbe": lastTruthy(entries, "userEnvProbe"),
		"remoteEnv":    lastPerKey(entries, "remoteEnv"),
	}
	r.remoteUser = merged["remoteUser"] // `devcontainer exec` ignores the container's variables here
	replacer := containerReplacer(r.Container.Env, r.Location.idLabels(r.Container))
	if merged, err = substitute(merged, replacer); err != nil {
		return nil, broken(r.Location, "%w", err)
	}
	return merged, nil
}

// substituteLabel replaces the host's variables in the label's entries, in place. The label comes
// from the image, and the user agreed only to the variables that the workspace's configuration
// uses: others are not set for it.
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
		r.warn("the container's label uses the host's variable %s, which the workspace's configuration "+
			"does not use: it is not set", name)
	}
	return nil
}

func (r *resolver) result(merged entry) (ExecConfig, error) {
	user, err := r.user()
	if err != nil {
		return ExecConfig{}, err
	}
	out := ExecConfig{
		User: user, WorkspaceFolder: r.scope.folder, RemoteEnv: r.remoteEnv(merged),
		Probe: r.probe(merged), ConfigHash: r.hash(), LocalEnvNames: r.localEnvNames(),
		Mounts: bindMounts(r.Container.Mounts),
	}
	slices.Sort(r.warnings) // objects are not ordered
	out.Warnings = r.warnings
	return out, nil
}

// user returns the last remoteUser, else the container's user.
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
	r.warn("userEnvProbe is %.40q, not none, loginShell, interactiveShell or loginInteractiveShell: "+
		"no shell is probed", fmt.Sprint(value))
	return ProbeNone
}

func (r *resolver) hash() string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "dray config 1\n%d\n%s%s", len(r.file.Raw), r.file.Raw,
		r.Container.Labels[LabelMetadata])
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// localEnvNames returns the host's variables in the properties that a call depends on.
func (r *resolver) localEnvNames() []string {
	names := map[string]bool{}
	sources, _ := parseMetadata(cmp.Or(r.Container.Labels[LabelMetadata], "[]"))
	for _, e := range append(sources, r.file.Values) {
		for _, property := range []string{"remoteUser", "userEnvProbe", "remoteEnv"} {
			CollectLocalEnv(e[property], names)
		}
	}
	CollectLocalEnv(r.file.Values["workspaceFolder"], names)
	return sortedNames(names)
}

// CollectLocalEnv adds the host's variables that a JSON value uses to names.
func CollectLocalEnv(v any, names map[string]bool) {
	scope := localScope{names: names}
	s := substitution{replace: scope.replace}
	_, _ = s.value(v) // an error is reported where the value is used
}

func (r *resolver) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// remoteEnv returns the merged remoteEnv without the names and values that are invalid in an
// environment.
func (r *resolver) remoteEnv(merged entry) map[string]string {
	values, _ := merged["remoteEnv"].(entry)
	env := make(map[string]string, len(values))
	for name, value := range values {
		text := textOf(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(text, "\x00") {
			r.warn("the variable %.60q of remoteEnv is ignored: its name or value is invalid in an "+
				"environment", name)
			continue
		}
		env[name] = text
	}
	return env
}

// textOf returns a JSON value as JavaScript converts it to a string.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return jsontext.Float(v + 0).String() // the sum is never a negative zero
	case bool:
		return strconv.FormatBool(v)
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

// bindMounts returns the bind mounts. A source with symlinks is returned by its real path too,
// because a caller may use either.
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

// realPath resolves symlinks if the path exists.
func realPath(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return resolved
}
