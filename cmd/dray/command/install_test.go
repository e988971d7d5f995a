package command

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scripts/install installs the program, units that systemd accepts and completions; uninstall
// removes them, and nothing else (OP-06).
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "prefix")
	if err := os.CopyFS(filepath.Join(dir, "scripts"), os.DirFS("../../../scripts")); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("dray")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("bash", append([]string{dir + "/scripts/install"}, args...)...)
		cmd.Env = append(os.Environ(), "PREFIX="+prefix)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, name := range []string{filepath.Join(dir, "bin"), prefix} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program, dir+"/bin/dray"); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(prefix, "other")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run()
	want := []string{
		"bin/dray", "other", "share/bash-completion/completions/dray",
		"share/fish/vendor_completions.d/dray.fish", "share/systemd/user/dray.service",
		"share/systemd/user/dray.socket", "share/zsh/site-functions/_dray",
	}
	if got := filesBelow(t, prefix); !slices.Equal(got, want) {
		t.Errorf("installed %q", got)
	}
	verifyUnits(t, prefix+"/share/systemd/user")
	run("uninstall")
	if got := filesBelow(t, prefix); !slices.Equal(got, []string{"other"}) {
		t.Errorf("left %q", got)
	}
}

// filesBelow returns the files below a directory, none of which is empty, and "other".
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		if info, statErr := d.Info(); statErr == nil && info.Size() == 0 && name != "other" {
			t.Errorf("%s is empty", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// verifyUnits checks the units with systemd where that is installed.
func verifyUnits(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed: the units are not verified")
		return
	}
	cmd := exec.Command("systemd-analyze", "verify", "--user", "--man=no",
		filepath.Join(dir, "dray.socket"), filepath.Join(dir, "dray.service"))
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "dray.") {
		t.Errorf("%v: %s", err, out)
	}
}
