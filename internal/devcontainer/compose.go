package devcontainer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// composeFileLine matches COMPOSE_FILE in an .env file, as the reference does.
var composeFileLine = lazyRegexp(`(?m)^COMPOSE_FILE=(.+)$`)

// addCompose adds the compose files, the files that they name, and the .env files with their
// variables.
func (f *trustInputs) addCompose() {
	if !isCompose(f.file.values) {
		return
	}
	files := f.composeFiles()
	if len(files) == 0 {
		f.fail(errors.New("dockerComposeFile names no file"))
		return
	}
	c := composeReader{trustInputs: f, project: filepath.Dir(files[0]), seen: map[string]bool{}}
	f.add(filepath.Join(f.loc.Workspace, ".env"))
	f.add(filepath.Join(c.project, ".env"))
	for _, file := range files {
		c.read(file)
	}
}

// composeFiles returns the compose files of the configuration, else the defaults of docker compose.
func (f *trustInputs) composeFiles() []string {
	files := textsOf(listOf(f.file.values["dockerComposeFile"]))
	if len(files) == 0 {
		return f.defaultComposeFiles()
	}
	for i, name := range files {
		name, err := f.expand(name)
		f.fail(err)
		files[i] = f.inConfigFolder(name)
	}
	return files
}

// defaultComposeFiles ignores COMPOSE_FILE in the daemon's environment: UpEnv does not pass it.
func (f *trustInputs) defaultComposeFiles() []string {
	env, err := readRegular(filepath.Join(f.loc.Workspace, ".env"))
	if err != nil && !isAbsent(err) {
		f.fail(err)
	}
	if m := composeFileLine().FindSubmatch(env); len(m) == 2 {
		files := filepath.SplitList(strings.TrimSpace(string(m[1])))
		for i, name := range files {
			files[i] = resolvePath(f.loc.Workspace, name)
		}
		if len(files) > 0 {
			return files
		}
	}
	// The override is optional; that it appears is a change too.
	return []string{
		filepath.Join(f.loc.Workspace, "docker-compose.yml"),
		filepath.Join(f.loc.Workspace, "docker-compose.override.yml"),
	}
}

// composeReader adds compose files and the files that they name.
type composeReader struct {
	*trustInputs

	project string
	seen    map[string]bool
}

func (c *composeReader) read(path string) {
	if c.seen[path] || c.err != nil {
		return
	}
	c.seen[path] = true
	c.add(path)
	text, err := readRegular(path)
	if isAbsent(err) {
		return // add has recorded that
	}
	var doc map[string]any
	if err == nil {
		err = yaml.Unmarshal(text, &doc)
	}
	if err != nil {
		c.fail(fmt.Errorf("read %s: %w", path, err))
		return
	}
	c.document(filepath.Dir(path), doc)
}

func (c *composeReader) document(dir string, doc map[string]any) {
	for _, include := range listOf(doc["include"]) {
		c.include(dir, include)
	}
	services, _ := doc["services"].(map[string]any)
	if _, ok := doc["services"]; !ok {
		services = doc // version 1 has no such level
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if service, ok := services[name].(map[string]any); ok {
			c.service(dir, name, service)
		}
	}
	for _, kind := range []string{"configs", "secrets"} {
		entries, _ := doc[kind].(map[string]any)
		for _, value := range entries {
			config, _ := value.(map[string]any)
			c.includeNamed(dir, config["file"], c.add)
		}
	}
}

func (c *composeReader) include(dir string, include any) {
	long, ok := include.(map[string]any)
	if !ok {
		c.includeNamed(dir, include, c.read)
		return
	}
	for _, path := range listOf(long["path"]) {
		c.includeNamed(dir, path, c.read)
	}
	c.envFiles(dir, long["env_file"])
}

func (c *composeReader) service(dir, name string, service map[string]any) {
	for _, property := range serviceAccess {
		c.services = appendLine(c.services, "service "+name+": "+property, service[property])
	}
	c.envFiles(dir, service["env_file"])
	if extends, ok := service["extends"].(map[string]any); ok {
		c.includeNamed(dir, extends["file"], c.read)
	}
	c.build(dir, service["build"])
}

func (c *composeReader) envFiles(dir string, value any) {
	for _, file := range listOf(value) {
		if long, ok := file.(map[string]any); ok {
			file = long["path"]
		}
		c.includeNamed(dir, file, c.add)
	}
}

// build adds the Dockerfile of a service, which is in its build context, unless that is a URL.
func (c *composeReader) build(dir string, value any) {
	if value == nil {
		return
	}
	context, dockerfile := value, any("Dockerfile")
	if long, ok := value.(map[string]any); ok {
		context, dockerfile = long["context"], cmp.Or(long["dockerfile"], dockerfile)
	}
	folder, ok := context.(string)
	if !ok {
		folder = "."
	}
	if name, ok := dockerfile.(string); ok && !isURL(folder) {
		c.includeNamed(dir, filepath.Join(folder, name), c.add)
	}
}

func isURL(context string) bool {
	return strings.Contains(context, "://") || strings.HasPrefix(context, "git@") ||
		strings.HasPrefix(context, "github.com/")
}

// includeNamed calls add with the paths that docker compose may resolve a name to: relative to the
// file that contains it, and to the project.
func (c *composeReader) includeNamed(dir string, value any, add func(path string)) {
	name, ok := value.(string)
	if !ok || name == "" {
		return
	}
	name, err := literalName(name)
	c.fail(err)
	add(resolvePath(dir, name))
	add(resolvePath(c.project, name))
}

// literalName returns a file name with "$$" and "~" replaced. It fails for a URL and for a name
// that depends on a variable.
func literalName(name string) (string, error) {
	if isURL(name) {
		return "", fmt.Errorf("the compose file includes %s, whose content is not covered", name)
	}
	plain := strings.ReplaceAll(name, "$$", "\x00")
	if strings.Contains(plain, "$") {
		return "", fmt.Errorf("the file name %q in a compose file depends on a variable", name)
	}
	if strings.HasPrefix(plain, "~") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		plain = home + plain[1:]
	}
	return strings.ReplaceAll(plain, "\x00", "$"), nil
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
