package devcontainer

import (
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
func (f *trustInputs) addCompose() error {
	if !isCompose(f.file.values) {
		return nil
	}
	files, err := f.composeFiles()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("dockerComposeFile names no file")
	}
	project := filepath.Dir(files[0])
	for _, dir := range []string{f.loc.Workspace, project} {
		if err := f.add(filepath.Join(dir, ".env")); err != nil {
			return err
		}
	}
	c := composeReader{f: f, project: project, seen: map[string]bool{}}
	for _, file := range files {
		if err := c.read(file); err != nil {
			return err
		}
	}
	return nil
}

// composeFiles returns the compose files of the configuration, else the defaults of docker compose.
func (f *trustInputs) composeFiles() ([]string, error) {
	var names []string
	switch value := f.file.values["dockerComposeFile"].(type) {
	case string:
		names = []string{value}
	case []any:
		names = textsOf(value)
	}
	if len(names) == 0 {
		return f.defaultComposeFiles()
	}
	files := make([]string, len(names))
	for i, name := range names {
		name, err := f.expand(name)
		if err != nil {
			return nil, err
		}
		files[i] = f.inConfigFolder(name)
	}
	return files, nil
}

// defaultComposeFiles ignores COMPOSE_FILE in the daemon's environment: UpEnv does not pass it.
func (f *trustInputs) defaultComposeFiles() ([]string, error) {
	env, err := readRegular(filepath.Join(f.loc.Workspace, ".env"))
	if err != nil && !isAbsent(err) {
		return nil, err
	}
	if m := composeFileLine().FindSubmatch(env); len(m) == 2 {
		var files []string
		for _, name := range filepath.SplitList(strings.TrimSpace(string(m[1]))) {
			files = append(files, resolvePath(f.loc.Workspace, name))
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	// The override is optional; that it appears is a change too.
	return []string{
		filepath.Join(f.loc.Workspace, "docker-compose.yml"),
		filepath.Join(f.loc.Workspace, "docker-compose.override.yml"),
	}, nil
}

// composeReader adds compose files and the files that they name.
type composeReader struct {
	f       *trustInputs
	project string
	seen    map[string]bool
}

// read adds a compose file and the files that it names.
func (c *composeReader) read(path string) error {
	if c.seen[path] {
		return nil
	}
	c.seen[path] = true
	if err := c.f.add(path); err != nil {
		return err
	}
	text, err := readRegular(path)
	if err != nil {
		if isAbsent(err) {
			return nil // add has recorded that
		}
		return err
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return c.document(filepath.Dir(path), doc)
}

func (c *composeReader) document(dir string, doc map[string]any) error {
	for _, include := range listOf(doc["include"]) {
		if err := c.include(dir, include); err != nil {
			return err
		}
	}
	services, _ := doc["services"].(map[string]any)
	if _, ok := doc["services"]; !ok {
		services = doc // version 1 has no such level
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		service, ok := services[name].(map[string]any)
		if !ok {
			continue
		}
		if err := c.service(dir, name, service); err != nil {
			return err
		}
	}
	for _, kind := range []string{"configs", "secrets"} {
		entries, _ := doc[kind].(map[string]any)
		for _, value := range entries {
			config, _ := value.(map[string]any)
			if err := c.includeNamed(dir, config["file"], c.f.add); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *composeReader) include(dir string, include any) error {
	long, ok := include.(map[string]any)
	if !ok {
		return c.includeNamed(dir, include, c.read)
	}
	for _, path := range listOf(long["path"]) {
		if err := c.includeNamed(dir, path, c.read); err != nil {
			return err
		}
	}
	return c.envFiles(dir, long["env_file"])
}

func (c *composeReader) service(dir, name string, service map[string]any) error {
	for _, property := range serviceAccess {
		c.f.services = appendLine(c.f.services, "service "+name+": "+property, service[property])
	}
	if err := c.envFiles(dir, service["env_file"]); err != nil {
		return err
	}
	if extends, ok := service["extends"].(map[string]any); ok {
		if err := c.includeNamed(dir, extends["file"], c.read); err != nil {
			return err
		}
	}
	return c.build(dir, service["build"])
}

func (c *composeReader) envFiles(dir string, value any) error {
	for _, file := range listOf(value) {
		if long, ok := file.(map[string]any); ok {
			file = long["path"]
		}
		if err := c.includeNamed(dir, file, c.f.add); err != nil {
			return err
		}
	}
	return nil
}

// build adds the Dockerfile of a service, which is in its build context, unless that is a URL.
func (c *composeReader) build(dir string, value any) error {
	context, dockerfile := value, any("Dockerfile")
	if long, ok := value.(map[string]any); ok {
		context = long["context"]
		if long["dockerfile"] != nil {
			dockerfile = long["dockerfile"]
		}
	} else if value == nil {
		return nil
	}
	folder, ok := context.(string)
	if !ok {
		folder = "."
	}
	name, ok := dockerfile.(string)
	if !ok || isURL(folder) {
		return nil
	}
	return c.includeNamed(dir, filepath.Join(folder, name), c.f.add)
}

func isURL(context string) bool {
	return strings.Contains(context, "://") || strings.HasPrefix(context, "git@") ||
		strings.HasPrefix(context, "github.com/")
}

// includeNamed calls add with the paths that docker compose may resolve a name to: relative to the
// file that contains it, and to the project.
func (c *composeReader) includeNamed(dir string, value any, add func(path string) error) error {
	name, ok := value.(string)
	if !ok || name == "" {
		return nil
	}
	name, err := literalName(name)
	if err != nil {
		return err
	}
	for _, base := range []string{dir, c.project} {
		if err := add(resolvePath(base, name)); err != nil {
			return err
		}
	}
	return nil
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
