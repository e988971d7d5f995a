package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dray-dev/dray/config"
)

// FuzzLoad checks with a file and a variable that Load does not panic, that its problems have an
// origin and a suggestion in printable lines, and that a valid Config keeps its invariants.
func FuzzLoad(f *testing.F) {
	names, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[0].Data), "TOOLS", "[{name: a, argv: [b]}]")
	}
	f.Add("", "CONTAINERS_DB_MAPPINGS", "[{host: /a, container: /b}]")
	f.Add("containers: {My-App: {id: x}}", "CONTAINERS_MY_APP_ID", "y")
	f.Add("a: &a [*a]", "HOST_ROOTS", "[/a, /b]")
	f.Fuzz(func(t *testing.T, file, name, val string) {
		c, err := source{file: file, env: []string{"DRAY_" + name + "=" + val}}.load()
		if err != nil {
			checkError(t, err)
			return
		}
		checkAccepted(t, c)
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	var invalid *config.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Diagnostics) == 0 {
		t.Fatalf("error is %#v", err)
	}
	for _, m := range invalid.Diagnostics {
		if m.Problem == "" || m.Suggestion == "" {
			t.Errorf("half a mistake: %+v", m)
		}
	}
	if i := strings.IndexFunc(err.Error(),
		func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("a control character at %d of %q", i, err.Error())
	}
}

func checkAccepted(t *testing.T, c *config.Config) {
	t.Helper()
	l := c.Limits
	if l.Timeout <= 0 || l.Timeout > l.MaxTimeout || l.IdleTimeout > l.MaxTimeout || l.Grace < 0 ||
		l.Capture <= 0 || l.View <= 0 {
		t.Errorf("limits are %+v", l)
	}
	for _, p := range append(append([]string{c.Server.Socket}, c.Host.Roots...),
		c.Trust.Workspaces...) {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || strings.ContainsRune(p, 0) {
			t.Errorf("%q is not clean and absolute", p)
		}
	}
	for _, tool := range c.Tools {
		if tool.Name == "" || len(tool.Argv) == 0 || tool.Argv[0] == "" || tool.Timeout > l.MaxTimeout {
			t.Errorf("tool is %+v", tool)
		}
		if s := tool.InputSchema; s != nil && (!json.Valid(s) || s[0] != '{') {
			t.Errorf("schema is %s", s)
		}
	}
	for name, box := range c.Containers {
		if name == "" || box.Workspace == "" && box.ID == "" && box.Label == "" {
			t.Errorf("container %q is %+v", name, box)
		}
	}
}

// Load writes nothing: commands may run before the state directory exists.
func TestLoadMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	stateAt(t, dir)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state folder is there: %v", err)
	}
}
