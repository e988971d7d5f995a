package compose

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dray-dev/dray/internal/lexical"
)

// The variables of an .env file that the reference reads, as it matches them.
var (
	composeFileLine = lexical.LazyRegexp(`(?m)^COMPOSE_FILE=(.+)$`)
	projectNameLine = lexical.LazyRegexp(`(?m)^COMPOSE_PROJECT_NAME=(.+)$`)
)

// Files reads the files of a workspace.
type Files interface {
	// Read returns the content of a file, nil if it does not exist.
	Read(path string) ([]byte, error)
	// IsDir reports whether a path is that of a directory.
	IsDir(path string) bool
}

// Inputs are the files that docker compose can read when it is asked for its model of a project: it
// gets copies of them and finds no other file. So a file that is missing here cannot decide what
// `up` does, and dray need not understand compose files as compose does.
type Inputs struct {
	// Dockerfiles are where the Dockerfiles of services can be, as far as that is known without
	// docker compose. They need not exist.
	Dockerfiles []string

	files     Files
	workspace string
	// isNamed is true if the configuration names the compose files.
	isNamed bool
	// composeFiles are the project's compose files in their order, without those that they name.
	composeFiles []string
	// content has each file that was read, nil if it does not exist.
	content map[string][]byte
	// dirs are the directories that names are relative to, and those of build contexts: compose 1.x
	// requires that they exist.
	dirs    map[string]bool
	visited int // values in compose files
	// err is the first error. Nothing is read after it.
	err error
}

// fileNames are the names of files in one compose file.
type fileNames struct {
	*Inputs

	// names are relative. The value is true for compose files.
	names map[string]bool
	// projectDirs are relative directories that the names in included files are relative to.
	projectDirs           map[string]bool
	contexts, dockerfiles map[string]bool
}

// maxNodes bounds the values in compose files, those of aliases each time they are used.
const maxNodes = 200_000

// Read reads the compose files of a workspace, the files that they name, and .env files.
// composeFiles are the paths of those that its configuration names; if it names none, they are
// found as the reference finds them. Read fails if a file cannot be read, or if compose would read
// one that depends on more than the files.
func Read(files Files, workspace string, composeFiles []string) (*Inputs, error) {
	in := newInputs(files, workspace)
	in.isNamed, in.composeFiles = len(composeFiles) > 0, composeFiles
	if env := in.readEnv(workspace); !in.isNamed {
		in.composeFiles = in.findComposeFiles(env)
	}
	project := filepath.Dir(in.composeFiles[0])
	in.readEnv(project)
	for _, file := range in.composeFiles {
		in.addComposeFile(file, map[string]bool{project: true})
	}
	slices.Sort(in.Dockerfiles)
	return in, in.err
}

func newInputs(files Files, workspace string) *Inputs {
	return &Inputs{
		files: files, workspace: workspace, content: map[string][]byte{}, dirs: map[string]bool{},
	}
}

func (in *Inputs) fail(err error) { in.err = cmp.Or(in.err, err) }

func (in *Inputs) read(path string) []byte {
	if content, done := in.content[path]; done || in.err != nil {
		return content
	}
	content, err := in.files.Read(path)
	in.fail(err)
	in.content[path] = content
	return content
}

// findComposeFiles returns the compose files that env, the workspace's .env, names, else the
// defaults of docker compose. COMPOSE_FILE in the daemon's environment is ignored: `up` names the
// file.
func (in *Inputs) findComposeFiles(env []byte) []string {
	var files []string
	if m := composeFileLine().FindSubmatch(env); len(m) == 2 {
		for _, name := range filepath.SplitList(strings.TrimSpace(string(m[1]))) {
			files = append(files, lexical.Resolve(in.workspace, name))
		}
	}
	if len(files) > 0 {
		return files
	}
	files = []string{filepath.Join(in.workspace, "docker-compose.yml")}
	override := filepath.Join(in.workspace, "docker-compose.override.yml")
	if in.read(override) != nil { // that it appears is a change too
		files = append(files, override)
	}
	return files
}

// readEnv reads the .env file of a directory. A directory of that name is ignored, as compose does.
func (in *Inputs) readEnv(dir string) []byte {
	path := filepath.Join(dir, ".env")
	if in.files.IsDir(path) {
		return nil
	}
	return in.read(path)
}

// addComposeFile adds a compose file and the files that it names. Names are relative to its
// directory, or to one of bases.
func (in *Inputs) addComposeFile(path string, bases map[string]bool) {
	n := fileNames{
		Inputs: in, names: map[string]bool{}, projectDirs: map[string]bool{},
		contexts: map[string]bool{}, dockerfiles: map[string]bool{"Dockerfile": true},
	}
	if err := n.collectFile(in.read(path)); err != nil {
		in.fail(fmt.Errorf("read %s: %w", path, err))
		return
	}
	bases = maps.Clone(bases)
	bases[filepath.Dir(path)] = true
	maps.Copy(in.dirs, bases)
	n.addFiles(bases)
	n.addContexts(bases)
}

// addFiles adds the files with names, and what those of them that are compose files name.
func (n *fileNames) addFiles(bases map[string]bool) {
	included := maps.Clone(bases)
	for dir := range n.paths(n.projectDirs, bases) {
		n.readEnv(dir)
		included[dir] = true
	}
	for file, isCompose := range n.paths(n.names, bases) {
		_, done := n.content[file]
		if isCompose && !done && n.read(file) != nil {
			n.readEnv(filepath.Dir(file))
			n.addComposeFile(file, included)
		}
		n.read(file)
	}
}

// addContexts adds the directories of build contexts, and each Dockerfile that is in one of them.
func (n *fileNames) addContexts(bases map[string]bool) {
	for context := range n.paths(n.contexts, bases) {
		n.dirs[context] = true
		for name := range n.dockerfiles {
			n.Dockerfiles = append(n.Dockerfiles, lexical.Resolve(context, name))
		}
	}
}

// paths returns the paths of names, with their values, for each base.
func (n *fileNames) paths(names, bases map[string]bool) iter.Seq2[string, bool] {
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

func (n *fileNames) collectFile(text []byte) error {
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
func (n *fileNames) collect(v *yaml.Node, key string) error {
	if n.visited++; n.visited > maxNodes {
		return fmt.Errorf("the compose files have more than %d values", maxNodes)
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

func (n *fileNames) collectMapping(v *yaml.Node, key string) error {
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
func (n *fileNames) collectName(name, key string) error {
	switch key {
	case "", keyExtends:
		return nil
	case keyBuild, keyContext:
		// for others the Dockerfile is known from the model
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
		n.names[name] = n.names[name] || key == keyInclude || key == keyFile
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

// textsOf returns the texts of a list, or of a single value.
func textsOf(value any) []string {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var out []string
	for _, v := range list {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
