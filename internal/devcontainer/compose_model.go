package devcontainer

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
)

// Compose runs `docker compose config` for a project.
type Compose struct {
	// Run runs a program. Its time and memory must be bounded: the project is not trusted.
	Run RunFunc
	// Env returns the environment of `up` for a workspace.
	Env func(workspace string) []string
	// State is the daemon's state directory. Copies of projects are made there.
	State string
}

// RunFunc runs a program and returns its stdout. An error has the end of its stderr.
type RunFunc func(ctx context.Context, cmd Command) (stdout string, err error)

// composeModel is a project as compose understands it, with its absolute paths and all files
// merged. `up` gets it instead of the project's files, so that what was trusted is what compose
// uses.
type composeModel struct {
	// text is the model as a compose file. Variables of the host are in it by name.
	text string
	// project is the name of the project that the reference uses.
	project string
	values  entry
	// hostEnv are the variables of the host that it uses.
	hostEnv map[string]bool
}

// noRemotes are variables with which compose fetches nothing that a project includes.
var noRemotes = []string{
	"COMPOSE_EXPERIMENTAL_GIT_REMOTE=false", "COMPOSE_EXPERIMENTAL_OCI_REMOTE=false",
}

// composeQuery gets the model of a project by running `docker compose config` on a copy of it.
type composeQuery struct {
	*composeInputs
	Compose

	// copy is the directory of the copy. It contains each file at its absolute path.
	copy string
	argv []string // the program, see chooseProgram
	// hostEnv is the environment of `up`, env that of compose.
	hostEnv, env []string
	// markers are the values in env that stand for variables of the host.
	markers map[string]string
}

// model returns the model of the project. Compose gets a copy of the files that were read, because
// a tool that runs in the container could replace a file by a device between the check and the use.
func (c *composeInputs) model(ctx context.Context, compose Compose) (m composeModel, err error) {
	dir, err := makeRunDir(compose.State)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	q := composeQuery{composeInputs: c, Compose: compose, copy: realPath(dir)}
	q.hostEnv = compose.Env(c.loc.Workspace)
	if err := q.makeCopy(); err != nil {
		return m, err
	}
	q.setEnv()
	if err := q.chooseProgram(ctx); err != nil {
		return m, err
	}
	return q.namedModel(ctx)
}

func (q *composeQuery) makeCopy() error {
	var err error
	mkdir := func(dir string) { err = cmp.Or(err, os.MkdirAll(q.copy+dir, 0o700)) }
	mkdir(q.loc.Workspace)
	for dir := range q.dirs {
		if q.isDir(dir) {
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
func (q *composeQuery) setEnv() {
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
func (q *composeQuery) chooseProgram(ctx context.Context) error {
	q.argv = []string{"docker", "compose"}
	if _, err := q.Run(ctx, q.command(append(q.argv, "version", "--short"))); err != nil {
		q.argv = []string{"docker-compose"}
		return context.Cause(ctx)
	}
	return nil
}

func (q *composeQuery) command(argv []string) Command {
	return Command{Argv: argv, Env: q.env, Dir: q.copy + q.loc.Workspace}
}

// namedModel returns the model, with what compose derives from the name of the project.
func (q *composeQuery) namedModel(ctx context.Context) (composeModel, error) {
	m, err := q.config(ctx)
	if err != nil {
		return m, err
	}
	project := q.projectName(m.values)
	if m.values["name"] != nil && m.values["name"] != project {
		m, err = q.config(ctx, "--project-name", project)
	}
	m.project = project
	return m, err
}

// config runs `config` of the program, args before it.
func (q *composeQuery) config(ctx context.Context, args ...string) (m composeModel, err error) {
	argv := append(slices.Clone(q.argv), args...)
	for _, file := range q.composeFiles {
		argv = append(argv, "-f", q.copy+file)
	}
	if files := listOf(q.file.values["dockerComposeFile"]); len(files) == 0 {
		if env := filepath.Join(q.loc.Workspace, ".env"); q.content[env] != nil {
			argv = append(argv, "--env-file", q.copy+env)
		}
	}
	if len(q.argv) > 1 {
		argv = append(argv, "--profile", "*")
	}
	out, err := q.Run(ctx, q.command(append(argv, "config")))
	if err != nil {
		return m, fmt.Errorf("docker compose refuses the project: %s",
			strings.ReplaceAll(err.Error(), q.copy, ""))
	}
	return q.parse(out)
}

// parse reads the output of `config`: paths of the copy become those of the workspace, and markers
// the names of variables.
func (q *composeQuery) parse(out string) (m composeModel, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(out), &doc); err != nil {
		return m, fmt.Errorf("read the output of docker compose config: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return m, errors.New("docker compose config printed no project")
	}
	m.hostEnv = map[string]bool{}
	if err := q.restore(&doc, m.hostEnv); err != nil {
		return m, err
	}
	versionFirst(doc.Content[0])
	text, err := yaml.Marshal(&doc)
	if err == nil {
		err = doc.Decode(&m.values)
	}
	m.text = string(text)
	return m, cmp.Or(err, m.check())
}

// restore replaces paths and markers below a node, and adds the variables of the markers to used.
func (q *composeQuery) restore(n *yaml.Node, used map[string]bool) error {
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

func (q *composeQuery) hasMarker(text string) bool {
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
func (m composeModel) check() error {
	for name, service := range m.services() {
		if service["provider"] != nil {
			return fmt.Errorf("service %s has a provider, which is a program on the host", name)
		}
		for _, option := range textsOf(listOf(service["security_opt"])) {
			if err := checkSecurityOption(option); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m composeModel) services() map[string]entry {
	services := map[string]entry{}
	all, _ := m.values["services"].(entry)
	for name, value := range all {
		services[name], _ = value.(entry)
	}
	return services
}

// bindDockerfiles adds the Dockerfiles that the services are built from, unless the context is a
// URL.
func (f *trustInputs) bindDockerfiles(m composeModel) {
	for _, service := range m.services() {
		build, _ := service["build"].(entry)
		context, _ := build["context"].(string)
		name, _ := build["dockerfile"].(string)
		if strings.Contains(context+name, "${") {
			f.fail(fmt.Errorf("the build context %q depends on a variable of the host", context))
		}
		if filepath.IsAbs(context) {
			path := resolvePath(context, cmp.Or(name, "Dockerfile"))
			f.add(strings.ReplaceAll(path, "$$", "$"))
		}
	}
}

// projectName returns the name that the reference gives the project of a model.
func (q *composeQuery) projectName(model entry) string {
	named, _ := lookupEnv(q.hostEnv, "COMPOSE_PROJECT_NAME")
	env := q.content[filepath.Join(q.loc.Workspace, ".env")]
	inEnv := ""
	if m := projectNameLine().FindSubmatch(env); len(m) == 2 {
		inEnv = strings.TrimSpace(string(m[1]))
	}
	inModel, _ := model["name"].(string)
	if inModel == "devcontainer" && !q.isNamed() {
		inModel = "" // it is that of the directory
	}
	dir := filepath.Dir(q.composeFiles[0])
	base := baseName(dir)
	if dir == filepath.Join(q.loc.Workspace, ".devcontainer") {
		base = baseName(q.loc.Workspace) + "_devcontainer"
	}
	return cmp.Or(projectText(named), projectText(inEnv), projectText(inModel), projectText(base))
}

// isNamed reports whether one of the compose files names the project.
func (q *composeQuery) isNamed() bool {
	return slices.ContainsFunc(q.composeFiles, func(file string) bool {
		var doc struct{ Name string }
		return yaml.Unmarshal(q.content[file], &doc) == nil && doc.Name != ""
	})
}

var notInProject = lazyRegexp(`[^-_a-z0-9]`)

func projectText(name string) string {
	return notInProject().ReplaceAllString(strings.ToLower(name), "")
}
