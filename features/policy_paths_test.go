package features

import (
	"os"
	"strings"
	"testing"
)

// Facts about paths of a container are those of the host paths that they lead to, whoever's paths
// the caller uses; a path without a mount is outside (PM-17, SE-04).
func TestPoliciesSeeMappedPaths(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	app, inside := g.root+"/app", "/workspaces/app"
	write := func(p string) map[string]any { return map[string]any{"path": p, "content": "x"} }
	command := func(text string) map[string]any { return map[string]any{"command": text} }
	for name, tt := range map[string]struct {
		tool, paths, cwd string
		input            map[string]any
		asks             bool
	}{
		"file":                       {"write_file", "container", "", write(inside + "/1"), false},
		"relative file":              {"write_file", "container", "", write("2"), false},
		"file outside":               {"write_file", "container", "", write("/tmp/3"), true},
		"host path as a container's": {"write_file", "container", "", write(app + "/4"), true},
		"host file":                  {"write_file", "", "", write(app + "/5"), false},
		"redirection":                {"shell", "container", "", command("echo x >" + inside + "/6"), false},
		"redirection of host caller": {"shell", "", "", command("echo x >" + inside + "/7"), false},
		"rewritten redirection":      {"shell", "host", "", command("echo x >" + app + "/8"), false},
		"redirection outside":        {"shell", "container", "", command("echo x >/tmp/9"), true},
		"directory":                  {"shell", "container", inside, command("echo x >10"), false},
		"directory outside":          {"shell", "container", "/tmp", command("echo x >11"), true},
		"directory above":            {"shell", "container", "..", command("echo x >12"), true},
	} {
		t.Run(name, func(t *testing.T) {
			body := g.body(app, tt.tool, tt.input)
			if tt.paths != "" {
				body["paths"] = tt.paths
			}
			if tt.cwd != "" {
				body["cwd"] = tt.cwd
			}
			a, err := g.call(t.Context(), "", body)
			if err != nil {
				t.Fatal(err)
			}
			asks := strings.Contains(string(a.raw), "approval_required")
			if asks != tt.asks && (tt.cwd != ".." || a.status != 400) {
				t.Errorf("asks %v, want %v: %s", asks, tt.asks, a.raw)
			}
		})
	}
	for _, name := range []string{"1", "2", "5", "6", "7", "8", "10"} {
		if _, err := os.Stat(app + "/" + name); err != nil {
			t.Errorf("an allowed call did not write: %v", err)
		}
	}
}
