package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray/config"
)

// loadWithTools loads a configuration whose tool_dirs is a directory with the given files.
func loadWithTools(t *testing.T, file string, tools map[string]string,
) (c *config.Config, dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range tools {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err = config.Load(config.Options{
		Environ: []string{"HOME=/home/me"},
		ReadFile: func(name string) ([]byte, error) {
			switch name {
			case fileName:
				return []byte(strings.ReplaceAll(file, "DIR", dir)), nil
			case "/home/me/.config/dray/config.yaml":
				return nil, fs.ErrNotExist
			default:
				return os.ReadFile(name)
			}
		},
	})
	return c, dir, err
}

// The files of tool_dirs have the same list as tools, and are read by name after it. Each value has
// its own origin (CF-01).
func TestToolDirs(t *testing.T) {
	c, dir, err := loadWithTools(t, "tools: [{name: own, argv: [x]}]\ntool_dirs: [DIR]\n", map[string]string{
		"b.yaml": "tools:\n  - name: three\n    argv: [c]\n",
		"a.yaml": "- {name: one, argv: [a]}\n- name: two\n  argv: [b, '${input.x}']\n",
		"c.yml":  "not read", "empty.yaml": "", "none.yaml": "tools:\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range c.Tools {
		names = append(names, tool.Name)
	}
	if got := fmt.Sprint(names); got != "[own one two three]" {
		t.Errorf("got the tools %s", got)
	}
	for key, want := range map[string]string{
		"tools[0].name": fileName + ":1:16", "tools[2].argv[1]": dir + "/a.yaml:3:13",
		"tools[3].name": dir + "/b.yaml:2:11",
	} {
		if got := c.Origin(key).String(); got != want {
			t.Errorf("the origin of %s is %s, want %s", key, got, want)
		}
	}
}

// Two tools of one name are refused with the origins of both (RT-06), and every mistake in any file
// has its position.
func TestToolDirsRefuse(t *testing.T) {
	_, dir, err := loadWithTools(t, "tools: [{name: own, argv: [x]}]\ntool_dirs: [DIR, DIR/none]\n", map[string]string{
		"a.yaml": "- {name: own, argv: [a]}\n- {name: x, argv: [a], timeout: 2h, wrong: 1}\n",
		"b.yaml": "tools: [{name: x, argv: [b]}]\nlimits: {}\n",
		"c.yaml": "a text\n", "d.yaml": "[",
	})
	if _, ok := errors.AsType[*config.InvalidError](err); !ok {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(err.Error(), dir, "DIR")
	for _, want := range []string{
		`DIR/a.yaml:1:10: tools[1].name: "own" is the name of two tools, the first at ` + fileName + ":1:16",
		`DIR/a.yaml:2:33: tools[2].timeout: "2h" exceeds limits.max_timeout`,
		`DIR/a.yaml:2:37: tools[2].wrong: is not a known key`,
		`DIR/b.yaml:1:16: tools[3].name: "x" is the name of two tools, the first at DIR/a.yaml:2:10`,
		`DIR/b.yaml:2:1: limits: is not a key of a file of tools`,
		`DIR/c.yaml:1:1: tools: "a text" is not a list`,
		`DIR/d.yaml:1`,
		`tool_dirs[1]: cannot be read: no such file or directory`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
