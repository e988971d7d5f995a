package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/lexical"
)

// Options are the options of Inputs.Project.
type Options struct {
	// Run runs a program. Its time and memory must be bounded: the project is not trusted.
	Run helper.RunFunc
	// Env returns the environment of `up` for a workspace.
	Env func(workspace string) []string
	// State is the daemon's state directory. Copies of projects are made there.
	State string
}

// Project is a project as compose understands it, with its absolute paths and all files merged.
// `up` gets it instead of the project's files, so that what was trusted is what compose uses.
type Project struct {
	// Text is the model as a compose file. Variables of the host are in it by name.
	Text string
	// Name is the name of the project that the reference uses.
	Name   string
	Values map[string]any
	// HostEnv are the variables of the host that it uses.
	HostEnv map[string]bool
}

// noRemotes are variables with which compose fetches nothing that a project includes.
var noRemotes = []string{
	"COMPOSE_EXPERIMENTAL_GIT_REMOTE=false", "COMPOSE_EXPERIMENTAL_OCI_REMOTE=false",
}

// query gets the model of a project by running `docker compose config` on a copy of it.
type query struct {
	*Inputs
	Options

	// copy is the directory of the copy. It contains each file at its absolute path.
	copy string
	argv []string // the program, see chooseProgram
	// hostEnv is the environment of `up`, env that of compose.
	hostEnv, env []string
	// markers are the values in env that stand for variables of the host.
	markers map[string]string
}

// Project asks docker compose for its model of the project. Compose gets a copy of the files that
// were read, because a tool that runs in the container could replace a file by a device between the
// check and the use.
func (in *Inputs) Project(ctx context.Context, o Options) (p Project, err error) {
	dir, err := helper.MakeRunDir(o.State)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return p, err
	}
	q := query{Inputs: in, Options: o, copy: dir, hostEnv: o.Env(in.workspace)}
	if err := q.makeCopy(); err != nil {
		return p, err
	}
	q.setEnv()
	if err := q.chooseProgram(ctx); err != nil {
		return p, err
	}
	return q.namedProject(ctx)
}

func (q *query) makeCopy() error {
	var err error
	mkdir := func(dir string) { err = cmp.Or(err, os.MkdirAll(q.copy+dir, 0o700)) }
	mkdir(q.workspace)
	for dir := range q.dirs {
		if q.files.IsDir(dir) {
			mkdir(dir)
		}
	}
	for path, content := range q.content {
		if content != nil {
			mkdir(filepath.Dir(path))
			err = cmp.Or(err, os.WriteFile(q.copy+path, content, 0o600))
		}
	}
	return err
}

// unmarkedNames are variables whose values docker compose needs to run, besides DOCKER_*, COMPOSE_*
// and LC_*.
var unmarkedNames = map[string]bool{"PATH": true, "LANG": true, "LANGUAGE": true}

// isMarked reports whether compose gets a marker instead of the value of a variable. Numbers stay,
// because compose would refuse another text for them.
func isMarked(name, value string) bool {
	if value == "" || unmarkedNames[name] || strings.HasPrefix(name, "DOCKER_") ||
		strings.HasPrefix(name, "COMPOSE_") || strings.HasPrefix(name, "LC_") {
		return false
	}
	_, err := strconv.ParseFloat(value, 64)
	return err != nil
}

// setEnv sets env, with markers instead of the values of variables: restore replaces them in the
// model by the names of the variables. So a changed value does not end the trust and is not shown.
// A marker is a path if the value is.
func (q *query) setEnv() {
	q.markers = map[string]string{}
	for _, pair := range q.hostEnv {
		name, value, _ := strings.Cut(pair, "=")
		if isMarked(name, value) {
			marker := "dray-host-variable-" + name + "-"
			if filepath.IsAbs(value) {
				marker = "/" + marker
			}
			q.markers[marker] = name
			value = marker
		}
		q.env = append(q.env, name+"="+value)
	}
	if _, ok := lookupEnv(q.hostEnv, "DOCKER_CONFIG"); !ok { // docker looks for its plugins there
		home, _ := lookupEnv(q.hostEnv, "HOME")
		q.env = append(q.env, "DOCKER_CONFIG="+filepath.Join(home, ".docker"))
	}
	q.env = append(q.env, noRemotes...)
}

func lookupEnv(env []string, name string) (value string, ok bool) {
	for _, pair := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// chooseProgram selects the program as the reference does: the plugin of docker, else
// docker-compose.
func (q *query) chooseProgram(ctx context.Context) error {
	q.argv = []string{"docker", "compose"}
	if _, err := q.Run(ctx, q.command(append(q.argv, "version", "--short"))); err != nil {
		q.argv = []string{"docker-compose"}
		return context.Cause(ctx)
	}
	return nil
}

func (q *query) command(argv []string) helper.Command {
	return helper.Command{Argv: argv, Env: q.env, Dir: q.copy + q.workspace}
}

// namedProject returns the project with what compose derives from the name of the project.
func (q *query) namedProject(ctx context.Context) (Project, error) {
	p, err := q.config(ctx)
	if err != nil {
		return p, err
	}
	name := q.projectName(p.Values)
	if p.Values["name"] != nil && p.Values["name"] != name {
		p, err = q.config(ctx, "--project-name", name)
	}
	p.Name = name
	return p, err
}

// config runs `config` of the program, args before it.
func (q *query) config(ctx context.Context, args ...string) (p Project, err error) {
	argv := append(slices.Clone(q.argv), args...)
	for _, file := range q.composeFiles {
		argv = append(argv, "-f", q.copy+file)
	}
	if !q.isNamed {
		if env := filepath.Join(q.workspace, ".env"); q.content[env] != nil {
			argv = append(argv, "--env-file", q.copy+env)
		}
	}
	if len(q.argv) > 1 {
		argv = append(argv, "--profile", "*")
	}
	out, err := q.Run(ctx, q.command(append(argv, "config")))
	if err != nil {
		return p, fmt.Errorf("docker compose refuses the project: %s",
			strings.ReplaceAll(err.Error(), q.copy, ""))
	}
	return q.parse(out)
}

// parse reads the output of `config`: paths of the copy become those of the workspace, and markers
// the names of variables.
func (q *query) parse(out string) (p Project, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(out), &doc); err != nil {
		return p, fmt.Errorf("read the output of docker compose config: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return p, errors.New("docker compose config printed no project")
	}
	p.HostEnv = map[string]bool{}
	if err := q.restore(&doc, p.HostEnv); err != nil {
		return p, err
	}
	versionFirst(doc.Content[0])
	text, err := yaml.Marshal(&doc)
	if err == nil {
		err = doc.Decode(&p.Values)
	}
	p.Text = string(text)
	return p, cmp.Or(err, p.check())
}

// restore replaces paths and markers below a node, and adds the variables of the markers to used.
func (q *query) restore(n *yaml.Node, used map[string]bool) error {
	for i, element := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		if isKey && q.hasMarker(element.Value) {
			return errors.New("a compose file uses a variable of the host in a name")
		}
		if err := q.restore(element, used); err != nil {
			return err
		}
	}
	if n.Kind != yaml.ScalarNode {
		return nil
	}
	root := strings.ReplaceAll(q.copy, "$", "$$") // as compose escapes it
	if n.Value == root {
		n.Value = "/"
	}
	n.Value = strings.ReplaceAll(n.Value, root+"/", "/")
	for marker, name := range q.markers {
		if strings.Contains(n.Value, marker) {
			used[name] = true
			n.Value = strings.ReplaceAll(n.Value, marker, "${"+name+"}")
		}
	}
	return nil
}

func (q *query) hasMarker(text string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(q.markers)),
		func(marker string) bool { return strings.Contains(text, marker) })
}

// versionFirst moves the version of a project to its start: the reference uses the first line that
// looks like a version, and compose 1.x refuses files of different versions.
func versionFirst(root *yaml.Node) {
	for i := 2; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "version" {
			pair := slices.Clone(root.Content[i : i+2])
			root.Content = slices.Insert(slices.Delete(root.Content, i, i+2), 0, pair...)
			return
		}
	}
}

// check fails if the model names a program of the host that compose would run, or a file of the
// host that compose would read again.
func (p Project) check() error {
	for name, service := range p.Services() {
		if service["provider"] != nil {
			return fmt.Errorf("service %s has a provider, which is a program on the host", name)
		}
		for _, option := range textsOf(service["security_opt"]) {
			if err := checkSecurityOption(option); err != nil {
				return err
			}
		}
	}
	return nil
}

// Services returns the services by their names.
func (p Project) Services() map[string]map[string]any {
	services := map[string]map[string]any{}
	all, _ := p.Values["services"].(map[string]any)
	for name, value := range all {
		services[name], _ = value.(map[string]any)
	}
	return services
}

// Builds reports whether a service is built from files.
func (p Project) Builds() bool {
	for _, service := range p.Services() {
		if service["build"] != nil {
			return true
		}
	}
	return false
}

// Dockerfiles returns the Dockerfiles that the services are built from, except those of contexts
// that are URLs.
func (p Project) Dockerfiles() ([]string, error) {
	var paths []string
	for _, service := range p.Services() {
		build, _ := service["build"].(map[string]any)
		context, _ := build["context"].(string)
		name, _ := build["dockerfile"].(string)
		if strings.Contains(context+name, "${") {
			return nil, fmt.Errorf("the build context %q depends on a variable of the host", context)
		}
		if filepath.IsAbs(context) {
			path := lexical.Resolve(context, cmp.Or(name, "Dockerfile"))
			paths = append(paths, strings.ReplaceAll(path, "$$", "$"))
		}
	}
	return paths, nil
}

// projectName returns the name that the reference gives the project of a model.
func (q *query) projectName(model map[string]any) string {
	named, _ := lookupEnv(q.hostEnv, "COMPOSE_PROJECT_NAME")
	env := q.content[filepath.Join(q.workspace, ".env")]
	inEnv := ""
	if m := projectNameLine().FindSubmatch(env); len(m) == 2 {
		inEnv = strings.TrimSpace(string(m[1]))
	}
	inModel, _ := model["name"].(string)
	if inModel == "devcontainer" && !q.hasName() {
		inModel = "" // it is that of the directory
	}
	dir := filepath.Dir(q.composeFiles[0])
	base := filepath.Base(dir)
	if dir == filepath.Join(q.workspace, ".devcontainer") {
		base = filepath.Base(q.workspace) + "_devcontainer"
	}
	return cmp.Or(projectText(named), projectText(inEnv), projectText(inModel), projectText(base))
}

// hasName reports whether one of the compose files names the project.
func (q *query) hasName() bool {
	return slices.ContainsFunc(q.composeFiles, func(file string) bool {
		var doc struct{ Name string }
		return yaml.Unmarshal(q.content[file], &doc) == nil && doc.Name != ""
	})
}

var notInProject = lexical.LazyRegexp(`[^-_a-z0-9]`)

func projectText(name string) string {
	return notInProject().ReplaceAllString(strings.ToLower(name), "")
}
