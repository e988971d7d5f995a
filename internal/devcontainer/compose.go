package devcontainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The variables of an .env file that the reference reads, as it matches them.
var (
	composeFileLine = lazyRegexp(`(?m)^COMPOSE_FILE=(.+)$`)
	projectNameLine = lazyRegexp(`(?m)^COMPOSE_PROJECT_NAME=(.+)$`)
)

// composeInputs are the files that docker compose can read when it is asked for its model of the
// project: it gets copies of them and finds no other file. So a file that is missing here cannot
// decide what `up` does, and dray need not understand compose files as compose does.
type composeInputs struct {
	*trustInputs

	// composeFiles are the project's compose files in their order, without those that they name.
	composeFiles []string
	// dirs are the directories that names are relative to, and those of build contexts: compose 1.x
	// requires that they exist.
	dirs    map[string]bool
	visited int // values in compose files
}

// composeNames are the names of files in one compose file.
type composeNames struct {
	*composeInputs

	// fileNames are relative. The value is true for compose files.
	fileNames map[string]bool
	// projectDirs are relative directories that the names in included files are relative to.
	projectDirs           map[string]bool
	contexts, dockerfiles map[string]bool
}

// maxComposeNodes bounds the values in compose files, those of aliases each time they are used.
const maxComposeNodes = 200_000

func newComposeInputs(f *trustInputs) *composeInputs {
	return &composeInputs{trustInputs: f, dirs: map[string]bool{}}
}

// addCompose adds the compose files, the files that they name, and .env files.
func (f *trustInputs) addCompose() {
	if !isCompose(f.file.values) {
		return
	}
	c := newComposeInputs(f)
	f.compose = c
	c.composeFiles = c.findComposeFiles(c.readEnv(f.loc.Workspace))
	project := filepath.Dir(c.composeFiles[0])
	c.readEnv(project)
	for _, file := range c.composeFiles {
		c.addComposeFile(file, map[string]bool{project: true})
	}
}

// findComposeFiles returns the compose files of the configuration, else those that env, the
// workspace's .env, names, else the defaults of docker compose. COMPOSE_FILE in the daemon's
// environment is ignored: Up names the file.
func (c *composeInputs) findComposeFiles(env []byte) []string {
	files := textsOf(listOf(c.file.values["dockerComposeFile"]))
	for i, name := range files {
		name, err := c.expand(name)
		c.fail(err)
		files[i] = c.inConfigFolder(name)
	}
	if m := composeFileLine().FindSubmatch(env); len(files) == 0 && len(m) == 2 {
		for _, name := range filepath.SplitList(strings.TrimSpace(string(m[1]))) {
			files = append(files, resolvePath(c.loc.Workspace, name))
		}
	}
	if len(files) > 0 {
		return files
	}
	files = []string{filepath.Join(c.loc.Workspace, "docker-compose.yml")}
	override := filepath.Join(c.loc.Workspace, "docker-compose.override.yml")
	if c.read(override) != nil { // that it appears is a change too
		files = append(files, override)
	}
	return files
}

// readEnv reads the .env file of a directory. A directory of that name is ignored, as compose does.
func (c *composeInputs) readEnv(dir string) []byte {
	path := filepath.Join(dir, ".env")
	if c.isDir(path) {
		return nil
	}
	return c.read(path)
}

// addComposeFile adds a compose file and the files that it names. Names are relative to its
// directory, or to one of bases.
func (c *composeInputs) addComposeFile(path string, bases map[string]bool) {
	n := composeNames{
		composeInputs: c, fileNames: map[string]bool{}, projectDirs: map[string]bool{},
		contexts: map[string]bool{}, dockerfiles: map[string]bool{"Dockerfile": true},
	}
	if err := n.collectFile(c.read(path)); err != nil {
		c.fail(fmt.Errorf("read %s: %w", path, err))
		return
	}
	bases = maps.Clone(bases)
	bases[filepath.Dir(path)] = true
	maps.Copy(c.dirs, bases)
	n.addFiles(bases)
	n.addContexts(bases)
}

// addFiles adds the files with fileNames, and what those of them that are compose files name.
func (n *composeNames) addFiles(bases map[string]bool) {
	included := maps.Clone(bases)
	for dir := range n.paths(n.projectDirs, bases) {
		n.readEnv(dir)
		included[dir] = true
	}
	for file, isCompose := range n.paths(n.fileNames, bases) {
		_, done := n.content[file]
		if isCompose && !done && n.read(file) != nil {
			n.readEnv(filepath.Dir(file))
			n.addComposeFile(file, included)
		}
		n.read(file)
	}
}

// addContexts adds the directories of build contexts, and each Dockerfile that is in one of them.
func (n *composeNames) addContexts(bases map[string]bool) {
	for context := range n.paths(n.contexts, bases) {
		n.dirs[context] = true
		for name := range n.dockerfiles {
			n.add(resolvePath(context, name))
		}
	}
}

// paths returns the paths of names, with their values, for each base.
func (n *composeNames) paths(names, bases map[string]bool) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for name, value := range names {
			for base := range bases {
				if leadsAboveRoot(base, name) { // in the copy it would lead out of the copy
					n.fail(fmt.Errorf("the file name %q leads above the root directory", name))
				}
				if n.err != nil || !yield(filepath.Join(base, name), value) {
					return
				}
			}
		}
	}
}

func (n *composeNames) collectFile(text []byte) error {
	docs := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = n.collect(&doc, "")
		}
		if err != nil {
			return err
		}
	}
}

// collect finds the names of files below a node. key is the innermost key for which compose reads
// files, wherever it is: more names than compose uses do no harm.
func (n *composeNames) collect(v *yaml.Node, key string) error {
	if n.visited++; n.visited > maxComposeNodes {
		return fmt.Errorf("the compose files have more than %d values", maxComposeNodes)
	}
	if tag := v.ShortTag(); tag != "" && !slices.Contains(yamlTags, tag) {
		return fmt.Errorf("line %d: the tag %s is not supported", v.Line, tag)
	}
	switch v.Kind {
	case yaml.MappingNode:
		return n.collectMapping(v, key)
	case yaml.ScalarNode:
		return n.collectName(v.Value, key)
	case yaml.AliasNode:
		return n.collect(v.Alias, key)
	default:
		for _, element := range v.Content {
			if err := n.collect(element, key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *composeNames) collectMapping(v *yaml.Node, key string) error {
	for i := 0; i+1 < len(v.Content); i += 2 {
		name := v.Content[i]
		if err := n.collect(name, ""); err != nil {
			return err
		}
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		if err := n.collect(v.Content[i+1], keyOf(name.Value, key)); err != nil {
			return err
		}
	}
	return nil
}

// The keys below which compose reads files for its model, and those of builds.
const (
	keyInclude    = "include"
	keyExtends    = "extends"
	keyFile       = "file" // below extends, where a name without it is that of a service
	keyEnvFile    = "env_file"
	keyLabelFile  = "label_file"
	keyProject    = "project_directory"
	keySecurity   = "security_opt" // 1.x reads seccomp profiles
	keyBuild      = "build"
	keyContext    = "context"
	keyDockerfile = "dockerfile"
	keyMerge      = "<<"
)

// keyOf returns the key for the value of name, inside a value of the key outer.
func keyOf(name, outer string) string {
	switch name {
	case keyInclude, keyExtends, keyEnvFile, keyLabelFile, keyProject, keySecurity, keyBuild:
		return name
	}
	switch outer {
	case keyExtends:
		if name == keyFile {
			return name
		}
	case keyBuild:
		if name == keyContext || name == keyDockerfile {
			return name
		}
		if name != keyMerge {
			return ""
		}
	}
	return outer
}

// yamlTags are the tags with which a value, or a key, is what its text says.
var yamlTags = []string{
	"!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!merge", "!!timestamp",
	"!reset", "!override",
}

// collectName adds a name. Compose must find it in the copy, so it must be relative.
func (n *composeNames) collectName(name, key string) error {
	switch key {
	case "", keyExtends:
		return nil
	case keyBuild, keyContext:
		// for others bindDockerfiles adds the Dockerfile, from the model
		if !strings.Contains(name, "$") && !isURL(name) && !filepath.IsAbs(name) {
			n.contexts[name] = true
		}
		return nil
	case keyDockerfile:
		n.dockerfiles[name] = true
		return nil
	case keySecurity:
		return checkSecurityOption(name)
	}
	plain := strings.ReplaceAll(name, "$$", "")
	switch {
	case isURL(name):
		return fmt.Errorf("it includes %s, whose content is not covered", name)
	case strings.Contains(plain, "$"):
		return fmt.Errorf("the file name %q depends on a variable", name)
	case filepath.IsAbs(name) || strings.HasPrefix(name, "~"):
		return fmt.Errorf("the file name %q is not relative", name)
	}
	name = strings.ReplaceAll(name, "$$", "$")
	if key == keyProject {
		n.projectDirs[name] = true
	} else {
		n.fileNames[name] = n.fileNames[name] || key == keyInclude || key == keyFile
	}
	return nil
}

// checkSecurityOption fails for a seccomp profile: compose reads its file again at `up`.
func checkSecurityOption(option string) error {
	option = strings.TrimSpace(option)
	isProfile := strings.HasPrefix(option, "seccomp") && option != "seccomp:unconfined" &&
		option != "seccomp=unconfined"
	if isProfile || strings.Contains(option, "$") {
		return fmt.Errorf("the content of the seccomp profile %q is not covered", option)
	}
	return nil
}

// isURL reports whether compose would fetch a file or a build context of this name.
func isURL(name string) bool {
	return strings.Contains(name, "://") || strings.HasPrefix(name, "git@") ||
		strings.HasPrefix(name, "github.com/") || strings.HasPrefix(name, "oci:")
}

// leadsAboveRoot reports whether a relative name has more ".." than the directory has segments.
func leadsAboveRoot(dir, name string) bool {
	up := 0
	for segment := range strings.SplitSeq(filepath.Clean(name), "/") {
		if segment != ".." {
			break
		}
		up++
	}
	dir = filepath.Clean(dir)
	return up > 0 && (dir == "/" || up > strings.Count(dir, "/"))
}

// listOf returns the elements of a list, or a single value as a list.
func listOf(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}

func textsOf(values []any) []string {
	var out []string
	for _, v := range values {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
