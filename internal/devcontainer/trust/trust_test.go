package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

func trustStore(t testing.TB, always ...string) *Store {
	t.Helper()
	return NewStore(t.TempDir(), always, devtest.Compose(t, helper.Env(os.Environ())))
}

// trustPresent trusts a workspace as it is.
func trustPresent(t testing.TB, s *Store, loc devcontainer.Location) (Summary, error) {
	t.Helper()
	review, err := s.Review(t.Context(), loc)
	if err != nil {
		return Summary{}, err
	}
	return s.Trust(t.Context(), loc, review.Hash)
}

func mustTrust(t testing.TB, s *Store, loc devcontainer.Location) Summary {
	t.Helper()
	summary, err := trustPresent(t, s, loc)
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

// wantUntrusted checks for the one error that keeps `up` from running.
func wantUntrusted(t testing.TB, s *Store, loc devcontainer.Location, message string) {
	t.Helper()
	ok, _, err := s.IsTrusted(t.Context(), loc)
	if ok || dray.CodeOf(err) != dray.CodeWorkspaceUntrusted ||
		!strings.Contains(err.Error(), message) || dray.AsError(err).Hint == "" {
		t.Errorf("trusted %v, error %v (%s), hint %q; want workspace_untrusted with %q", ok, err,
			dray.CodeOf(err), dray.AsError(err).Hint, message)
	}
}

func wantTrusted(t testing.TB, s *Store, loc devcontainer.Location) {
	t.Helper()
	if ok, _, err := s.IsTrusted(t.Context(), loc); !ok {
		t.Errorf("not trusted: %v", err)
	}
}

// trustCases are configurations with the files that they bring along, and the changes that must end
// a trust.
var trustCases = []struct {
	name    string
	config  string
	files   map[string]string
	changes []string // files that are written anew or for the first time
	free    []string // files whose change does not matter
}{
	{
		name: "image", config: `{"image": "x"}`,
		changes: []string{
			".devcontainer/devcontainer.json", ".devcontainer/devcontainer-lock.json",
			".devcontainer/new/file",
		},
		free: []string{"main.go", "Dockerfile", "docker-compose.yml"},
	},
	{
		name: "Dockerfile", config: `{"build": {"dockerfile": "../docker/Dockerfile", "context": ".."}}`,
		files:   map[string]string{"docker/Dockerfile": "FROM x"},
		changes: []string{"docker/Dockerfile"},
		free:    []string{"docker/other"},
	},
	{
		name: "old form of Dockerfile", config: `{"dockerFile": "${localWorkspaceFolder}/Dockerfile"}`,
		changes: []string{"Dockerfile"},
	},
	{
		name: "local feature", config: `{"image": "x", "features": {"../feature": {}, "ghcr.io/a/b:1": {}}}`,
		files:   map[string]string{"feature/install.sh": "a", "feature/deep/er": "a"},
		changes: []string{"feature/install.sh", "feature/deep/er", "feature/new"},
	},
	{
		name: "commands on the host", config: `{"image": "x", "runArgs": ["--env-file=env/run", "--security-opt", "seccomp=sec.json"],
			"initializeCommand": {"a": "cd sub && ../init.sh 'quoted name'; bash<redirected", "b": ["python3", "${localWorkspaceFolder}/setup.py", "two words"]}}`,
		files:   map[string]string{"init.sh": "a", "setup.py": "a", "build/x": "a"},
		changes: []string{"setup.py", "redirected", "env/run", "sec.json", "two words"},
		free:    []string{"other.py", "env/other"},
	},
}

// A trust ends when the configuration or a file that it names changes (RT-09).
func TestTrustEndsWhenInputChanges(t *testing.T) {
	for _, c := range trustCases {
		t.Run(c.name, func(t *testing.T) {
			loc := devtest.Workspace(t, c.config)
			for name, content := range c.files {
				devtest.Write(t, loc.Workspace, name, content)
			}
			s := trustStore(t)
			wantUntrusted(t, s, loc, "is not trusted")
			mustTrust(t, s, loc)
			wantTrusted(t, s, loc)
			wantBound(t, s, loc, c.free, c.changes)
		})
	}
}

// wantBound checks that a trusted configuration stays trusted when the files in free change, and is
// not trusted while one of those in changes is changed.
func wantBound(t *testing.T, s *Store, loc devcontainer.Location, free, changes []string) {
	t.Helper()
	for _, name := range free {
		devtest.Write(t, loc.Workspace, name, "changed")
		wantTrusted(t, s, loc)
	}
	for _, name := range changes {
		changeAndBack(t, filepath.Join(loc.Workspace, name),
			func() { wantUntrusted(t, s, loc, "has changed since") })
		wantTrusted(t, s, loc)
		if t.Failed() {
			t.Fatalf("at %s", name)
		}
	}
}

// changeAndBack changes a file, or makes it, and undoes that.
func changeAndBack(t *testing.T, path string, check func()) {
	t.Helper()
	old, err := os.ReadFile(path)
	existed := err == nil
	content := string(old) + "\n"
	if !existed {
		content = "services: {}"
	}
	top := firstMissing(path)
	devtest.Write(t, filepath.Dir(path), filepath.Base(path), content)
	check()
	if existed {
		devtest.Write(t, filepath.Dir(path), filepath.Base(path), string(old))
		return
	}
	if err := os.RemoveAll(top); err != nil {
		t.Fatal(err)
	}
}

// firstMissing is the highest part of a path that does not exist.
func firstMissing(path string) string {
	if _, err := os.Lstat(filepath.Dir(path)); err != nil {
		return firstMissing(filepath.Dir(path))
	}
	return path
}

// The directory that `up` mounts is trusted with the configuration. A repository above the workspace
// moves it. core.worktree, which a tool in the container can set to the root of the host, does not.
func TestTrustCoversMountedDirectory(t *testing.T) {
	loc := devtest.Workspace(t, `{"image": "x"}`)
	devtest.Git(t, loc.Workspace, "init", "-q")
	s := trustStore(t)
	mustTrust(t, s, loc)
	before, err := s.Approve(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	devtest.Git(t, loc.Workspace, "config", "core.worktree", "/")
	wantTrusted(t, s, loc)
	above := filepath.Dir(loc.Workspace)
	devtest.Must(t, os.Rename(loc.Workspace+"/.git", above+"/.git"))
	wantUntrusted(t, s, loc, "has changed since")

	pinned := filepath.Join(t.TempDir(), "devcontainer.json")
	devtest.Must(t, before.WriteConfig(pinned, t.TempDir()))
	text, err := os.ReadFile(pinned)
	if want := `"type=bind,source=` + loc.Workspace + `,target=/workspaces/app"`; err != nil ||
		!strings.Contains(string(text), `"workspaceMount":`+want) ||
		!strings.Contains(string(text), `"workspaceFolder":"/workspaces/app"`) {
		t.Errorf("pinned %s, %v: the mount that was agreed to is not what up gets", text, err)
	}
	summary := mustTrust(t, s, loc)
	if !strings.Contains(fmt.Sprint(summary.Access), "workspaceMount the directory "+above+"]") ||
		!strings.Contains(fmt.Sprint(summary.Notes), "is mounted, not only the workspace: "+above) {
		t.Errorf("the summary does not show that %s is mounted: %+v", above, summary)
	}
}

func TestTrust_SymlinkToWorkspace(t *testing.T) {
	loc := devtest.Workspace(t, `{"image": "x"}`)
	link := filepath.Join(devtest.TempDir(t), "link")
	if err := os.Symlink(loc.Workspace, link); err != nil {
		t.Fatal(err)
	}
	s := trustStore(t)
	mustTrust(t, s, devtest.Locate(t, link))
	wantTrusted(t, s, loc)
	other := devtest.Workspace(t, `{"image": "x"}`)
	wantUntrusted(t, s, other, "is not trusted")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other.Workspace, link); err != nil {
		t.Fatal(err)
	}
	wantUntrusted(t, s, devtest.Locate(t, link), "is not trusted")
	named := devtest.Write(t, loc.Workspace, ".devcontainer.json", `{"image": "x"}`)
	mustTrust(t, s, loc)
	wantUntrusted(t, s, devcontainer.Location{Workspace: loc.Workspace, Config: named}, "is not trusted")
}

// A workspace whose trust inputs cannot be read or known is not trusted.
func TestTrustFailsClosed(t *testing.T) {
	for _, test := range []struct {
		name, config, want string
		files              map[string]string
		prepare            func(t *testing.T, folder string)
	}{
		{name: "FIFO", config: `{}`, want: "not a regular file", prepare: func(t *testing.T, folder string) { devtest.Mkfifo(t, folder+"/.devcontainer/pipe") }},
		{name: "symlink to a directory", config: `{}`, want: "symlink to a directory", prepare: func(t *testing.T, folder string) {
			if err := os.Symlink("/usr", folder+"/.devcontainer/usr"); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "link that leads to itself", config: `{}`, want: "too many levels", prepare: func(t *testing.T, folder string) {
			if err := os.Symlink("self", folder+"/.devcontainer/self"); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "too many files", config: `{}`, want: "more than 5000 files", prepare: func(t *testing.T, folder string) {
			for i := range maxFiles + 1 {
				devtest.Write(t, folder, fmt.Sprintf(".devcontainer/%d", i), "")
			}
		}},
		{name: "too many bytes", config: `{}`, want: "more than 64 MiB", prepare: func(t *testing.T, folder string) {
			if err := os.Truncate(devtest.Write(t, folder, ".devcontainer/big", ""), maxBytes); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "Dockerfile by a variable", config: `{"dockerFile": "${localEnv:FILE}"}`, want: `depends on the variable FILE`},
		{name: "compose file by a variable", config: `{"dockerComposeFile": "${localEnv:FILE:c.yml}"}`, want: `depends on the variable FILE`},
		{name: "broken compose file", config: `{"dockerComposeFile": "c.yml"}`, files: map[string]string{".devcontainer/c.yml": "a: b: c"}, want: "c.yml: yaml"},
		{name: "compose file that is a folder", config: `{"dockerComposeFile": "c.yml"}`, files: map[string]string{".devcontainer/c.yml/x": ""}, want: "not a regular file"},
		{name: "no compose file", config: `{"dockerComposeFile": 5}`, files: map[string]string{".env": "COMPOSE_FILE=:"}, want: "not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			loc := devtest.Workspace(t, test.config)
			for name, content := range test.files {
				devtest.Write(t, loc.Workspace, name, content)
			}
			if test.prepare != nil {
				test.prepare(t, loc.Workspace)
			}
			s := trustStore(t)
			if _, err := trustPresent(t, s, loc); dray.CodeOf(err) != dray.CodeWorkspaceUntrusted ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v (%s), want %q", err, dray.CodeOf(err), test.want)
			}
			wantUntrusted(t, s, loc, test.want)
			wantTrusted(t, trustStore(t, loc.Workspace), loc) // the operator's own word needs no survey
		})
	}
}

func TestAlwaysTrustedFolders(t *testing.T) {
	loc := devtest.Workspace(t, `{"image": "x"}`)
	link := filepath.Join(devtest.TempDir(t), "link")
	if err := os.Symlink(loc.Workspace, link); err != nil {
		t.Fatal(err)
	}
	wantTrusted(t, trustStore(t, link+"/"), loc)
	wantUntrusted(t, trustStore(t, filepath.Dir(loc.Workspace), loc.Workspace+"2"), loc,
		"is not trusted")
	devtest.Write(t, loc.Workspace, ".devcontainer/devcontainer.json", "[]")
	if _, err := trustStore(t, loc.Workspace).
		Approve(t.Context(), loc); dray.CodeOf(err) != dray.CodeContainerFailed {
		t.Errorf("a broken configuration is approved: %v", err)
	}
}

// A trust.json that another user could have written, or that is damaged, is refused and kept.
func TestTrustFileFailsClosed(t *testing.T) {
	loc := devtest.Workspace(t, `{"image": "x"}`)
	for name, damage := range map[string]func(path string) error{
		"writable by the group": func(path string) error { return os.Chmod(path, 0o660) },
		"another's":             func(path string) error { return os.Chown(path, 12345, -1) },
		"truncated":             func(path string) error { return os.Truncate(path, 20) },
		"empty":                 func(path string) error { return os.Truncate(path, 0) },
		"of a later version":    func(path string) error { return os.WriteFile(path, []byte(`{"version": 2, "trusted": []}`), 0o600) },
		"with unknown members": func(path string) error {
			return os.WriteFile(path, []byte(`{"version": 1, "trusted": [], "x": 1}`), 0o600)
		},
		"a link":   func(path string) error { return os.Rename(path, path+"2") },
		"a folder": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another's" && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			s := trustStore(t)
			mustTrust(t, s, loc)
			if err := damage(s.file.path); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "a link":
				if err := os.Symlink(s.file.path+"2", s.file.path); err != nil {
					t.Fatal(err)
				}
			case "a folder":
				if err := os.Mkdir(s.file.path, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			wantUntrusted(t, s, loc, "read the trusted workspaces")
			if _, err := trustPresent(t, s, loc); dray.CodeOf(err) != dray.CodeWorkspaceUntrusted {
				t.Errorf("it was overwritten: %v", err)
			}
		})
	}
}

func TestTrustFile(t *testing.T) {
	s := trustStore(t)
	var locs []devcontainer.Location
	for range 8 {
		locs = append(locs, devtest.Workspace(t, `{"image": "x"}`))
	}
	var wg sync.WaitGroup
	for _, loc := range locs {
		wg.Go(func() { mustTrust(t, s, loc) })
	}
	wg.Wait()
	for _, loc := range locs {
		wantTrusted(t, s, loc) // no writer lost another's record
	}
	info, err := os.Stat(s.file.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	mustTrust(t, s, locs[0])
	doc, err := s.file.read()
	if err != nil || len(doc.Trusted) != len(locs) {
		t.Errorf("%d records, %v", len(doc.Trusted), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.file.path), ".trust*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
