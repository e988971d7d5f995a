package pathmapper_test

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

func newMapper(t testing.TB, pairs ...string) *pathmapper.Mapper {
	t.Helper()
	m, err := pathmapper.New(mappings(pairs...))
	if err != nil {
		t.Fatalf("New(%q): %v", pairs, err)
	}
	return m
}

// mappings takes host and container roots in turn.
func mappings(pairs ...string) []pathmapper.Mapping {
	var all []pathmapper.Mapping
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, pathmapper.Mapping{Host: pairs[i], Container: pairs[i+1]})
	}
	return all
}

// PM-02: roots are cleaned once.
func TestNewCleansRoots(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"/srv/app", "/srv/app/", "//srv//app//", "/srv/./app/."} {
		m := newMapper(t, root, "/workspaces//app/")
		got, err := m.ToContainer("/srv/app")
		if err != nil || got.Path != "/workspaces/app" {
			t.Errorf("root %q: ToContainer(/srv/app) = %q, %v", root, got.Path, err)
		}
	}
}

// PM-02, PM-03, PM-04, PM-05, PM-15: what a configured root may not be; the error names both roots, and what to do.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, host, container, says string }{
		{"empty host", "", "/workspace", "empty"},
		{"empty container", "/srv", "", "empty"},
		{"relative host", "srv", "/workspace", "not an absolute path"},
		{"relative container", "/srv", "workspace", "not an absolute path"},
		{"blank", " ", "/workspace", "not an absolute path"},
		{"slash", "/", "/workspace", "every path"},
		{"two slashes", "//", "/workspace", "every path"},
		{"slash by dots", "/./", "/workspace", "every path"},
		{"slash in the container", "/srv", "/", "every path"},
		{"dotdot", "/srv/../etc", "/workspace", `".." segment`},
		{"dotdot in the container", "/srv", "/workspace/..", `".." segment`},
		{"NUL", "/srv\x00", "/workspace", "NUL"},
		{"not UTF-8", "/srv/\xff", "/workspace", "UTF-8"},
		{"host above container", "/srv", "/srv/app", `"/srv" is an ancestor of "/srv/app"`},
		{"container above host", "/workspace/app", "/workspace", `"/workspace" is an ancestor of "/workspace/app"`},
		{"ancestor after cleaning", "/srv//", "/srv/./app", "ancestor"},
		{"drive", `C:\Users\me`, "/workspace", "Windows"},
		{"drive with slashes", "c:/Users/me", "/workspace", "Windows"},
		{"UNC", `\\wsl$\Debian\srv`, "/workspace", "Windows"},
		{"Windows in the container", "/srv", `C:\app`, "Windows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := pathmapper.New(mappings("/data", "/data", c.host, c.container))
			if m != nil || dray.CodeOf(err) != dray.CodePathInvalid {
				t.Fatalf("New = %v, %v; want path_invalid", m, err)
			}
			e := dray.AsError(err)
			for _, part := range []string{c.says, quoted(c.host), quoted(c.container)} {
				if !strings.Contains(e.Message, part) {
					t.Errorf("message %q lacks %q", e.Message, part)
				}
			}
			if e.Hint == "" {
				t.Error("there is no hint")
			}
		})
	}
}

func quoted(p string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, "\x00", `\x00`, "\xff", `\xff`).Replace(p) + `"`
}

// PM-04: neighbours and equal roots are fine.
func TestNewAccepts(t *testing.T) {
	t.Parallel()
	for _, pair := range [][]string{{"/srv/app", "/srv/app"}, {"/srv/app", "/srv/application"}, {"/a/b", "/a/c"}, {"/home/me/C:", "/c"}} {
		newMapper(t, pair...)
	}
}

// PM-14: a container's mounts and what is configured stand together; configured ones go first. PM-03, PM-04: a bad mount is skipped
// with a warning.
func TestFromMounts(t *testing.T) {
	t.Parallel()
	m, warnings, err := pathmapper.FromMounts([]dray.Mount{
		{Host: "/home/me/app", Container: "/workspaces/app"},
		{Host: "/", Container: "/hostfs"},
		{Host: "/srv", Container: "/srv/all"},
		{Host: "", Container: "/workspaces/app/node_modules"},
		{Host: `C:\Users`, Container: "/users"},
		{Host: "/mnt/real", Container: "/data"},
	}, mappings("/data", "/data"))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 3 {
		t.Fatalf("warnings = %q, want three", warnings)
	}
	for i, part := range []string{`"/hostfs"`, `"/srv/all"`, `"/users"`} {
		if !strings.Contains(warnings[i], part) {
			t.Errorf("warning %d is %q and lacks %s", i, warnings[i], part)
		}
	}
	checkPaths(t, m, pathmapper.ToContainer, map[string]string{
		"/home/me/app/go.mod":            "/workspaces/app/go.mod",
		"/data/x":                        "/data/x",
		"/mnt/real/x":                    "/data/x", // another name of the same folder
		"/srv/x":                         "",
		"/home/me/app/node_modules/left": "", // a volume hides it
	})
	checkPaths(t, m, pathmapper.ToHost, map[string]string{
		"/workspaces/app/go.mod":         "/home/me/app/go.mod",
		"/data/x":                        "/data/x", // the configured name
		"/hostfs/etc/passwd":             "",
		"/srv/all/x":                     "",
		"/users/me":                      "",
		"/workspaces/app/node_modules":   "",
		"/workspaces/app/node_modules/a": "",
	})
}

func TestFromMountsRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	m, _, err := pathmapper.FromMounts([]dray.Mount{{Host: "/a", Container: "/b"}}, mappings("/srv", "/srv/app"))
	if m != nil || dray.CodeOf(err) != dray.CodePathInvalid {
		t.Fatalf("FromMounts = %v, %v; want path_invalid", m, err)
	}
}

// checkPaths maps each key; an empty value means that it must stay as it is, with a reason.
func checkPaths(t *testing.T, m *pathmapper.Mapper, dir pathmapper.Direction, cases map[string]string) {
	t.Helper()
	for give, want := range cases {
		translate := m.ToContainer
		if dir == pathmapper.ToHost {
			translate = m.ToHost
		}
		got, err := translate(give)
		switch {
		case err != nil:
			t.Errorf("%s %q: %v", dir, give, err)
		case want == "" && (got.Mapped || got.Path != give || got.Reason == ""):
			t.Errorf("%s %q = %+v, want it unmapped and unchanged, with a reason", dir, give, got)
		case want != "" && (!got.Mapped || got.Path != want || got.Reason != ""):
			t.Errorf("%s %q = %+v, want %q", dir, give, got, want)
		}
	}
}
