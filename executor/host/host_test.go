package host_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/executor/process/processtest"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}

func newHost(t *testing.T, cfg host.Config) *host.Host {
	t.Helper()
	pool := processtest.NewPool(t)
	if cfg.Homes == "" {
		cfg.Homes = filepath.Join(t.TempDir(), "homes")
	}
	return host.New(cfg, pool)
}

// newDir returns a new directory by its real path.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestContract(t *testing.T) {
	t.Setenv("DRAY_TEST_SECRET", "not for tools")
	t.Setenv("DRAY_TEST_PASSED", "for tools")
	t.Setenv("DOCKER_HOST", "unix:///not/for/tools")
	dir := newDir(t)
	groups := []string{fmt.Sprint(os.Getuid()), fmt.Sprint(os.Getgid())}
	executortest.Run(t, executortest.Harness{
		Environment: newHost(t, host.Config{Roots: []string{dir}, Env: []string{"DRAY_TEST_PASSED"}}).
			Environment(dir), Dir: dir,
		ID: strings.Join(append(groups, ownGroups(t)...), " "),
		Set: []string{
			"DRAY_TEST_PASSED=for tools", "PWD=" + dir,
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		},
		Unset: []string{"DRAY_TEST_SECRET", "DOCKER_HOST", "GORACE", "USER"},
	})
}

// ownGroups returns the groups of this process as `id -G` prints them.
func ownGroups(t *testing.T) []string {
	t.Helper()
	list, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	groups := []string{fmt.Sprint(os.Getgid())}
	for _, g := range list {
		if g != os.Getgid() {
			groups = append(groups, fmt.Sprint(g))
		}
	}
	return groups
}

func output(t *testing.T, env dray.Environment, spec dray.ProcessSpec) string {
	t.Helper()
	p, err := env.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin().Close()
	var quiet sync.WaitGroup
	quiet.Go(func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) })
	out, _ := io.ReadAll(p.Output(dray.Stdout))
	quiet.Wait()
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("got %+v, %v", exit, err)
	}
	return string(out)
}

// The environment of a host tool is built, never inherited; HOME is the workspace's own (EX-06).
func TestBuiltEnvironment(t *testing.T) {
	t.Setenv("LANG", "xx_XX.UTF-8")
	t.Setenv("TZ", "Asia/Kolkata")
	t.Setenv("TERM", "a-terminal")
	t.Setenv("SSH_AUTH_SOCK", "/the/daemon's")
	a, b, homes := newDir(t), newDir(t), filepath.Join(newDir(t), "homes")
	h := newHost(t, host.Config{Roots: []string{a, b}, Homes: homes})
	got := output(t, h.Environment(a), dray.ProcessSpec{Argv: []string{"/usr/bin/env"}, Dir: a})
	names := map[string]string{}
	for line := range strings.Lines(got) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		names[name] = value
	}
	for _, name := range []string{"PATH", "HOME", "PWD", "LANG", "TERM", "TZ"} {
		if names[name] == "" {
			t.Errorf("%s is not set", name)
		}
		if name != "HOME" {
			delete(names, name)
		}
	}
	home := names["HOME"]
	delete(names, "HOME")
	if len(names) != 0 {
		t.Errorf("these are set besides: %v", names)
	}
	info, err := os.Stat(home)
	if err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(home) != homes {
		t.Errorf("HOME is %s: %v, %v", home, info, err)
	}
	echo := dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo $HOME"}}
	if other, again := output(t, h.Environment(b), echo), output(t, h.Environment(a),
		echo); other == again || again != home+"\n" {
		t.Errorf("homes are %q, %q and %q; each workspace has its own, and keeps it", home, other, again)
	}
}

// Variables through which a caller could run code on the host or redirect its tools are denied;
// others are passed (EX-06).
func TestForbiddenVariables(t *testing.T) {
	dir := newDir(t)
	env := newHost(t, host.Config{Roots: []string{dir}}).Environment(dir)
	for _, name := range []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_", "BASH_ENV", "ENV", "GIT_SSH_COMMAND", "GIT_DIR", "PAGER", "DOCKER_HOST", "PATH", "HOME", "", "A=B", "A\x00B",
	} {
		_, err := env.Start(t.Context(), dray.ProcessSpec{
			Argv: []string{"/bin/true"}, Dir: dir,
			Env: map[string]string{name: "x"},
		})
		if dray.CodeOf(err) != dray.CodeDenied {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, name := range []string{"ld_preload", "ENVIRONMENT", "GITHUB_TOKEN", "MY_LD_PATH", "TERM"} {
		got := output(t, env, dray.ProcessSpec{
			Argv: []string{"/usr/bin/env"}, Dir: dir,
			Env: map[string]string{name: "the caller's"},
		})
		if !strings.Contains("\n"+got, "\n"+name+"=the caller's\n") {
			t.Errorf("%s did not arrive", name)
		}
	}
}

// Tools may work beneath a root, after symlinks are resolved, and nowhere else.
func TestRoots(t *testing.T) {
	root, outside := newDir(t), newDir(t)
	for _, dir := range []string{root + "/in/deep", outside + "/sub"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"out": outside, "rel": "../" + filepath.Base(outside),
		"home": "in", "dots": "in/../..",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root, outside+"/back"); err != nil {
		t.Fatal(err)
	}
	env := newHost(t, host.Config{Roots: []string{root}}).Environment(root)
	for dir, want := range map[string]dray.Code{
		root: "", root + "/in/deep": "", root + "/home/deep": "",
		root + "/out": dray.CodeBadCwd, root + "/out/sub": dray.CodeBadCwd, root +
			"/rel": dray.CodeBadCwd, root + "/dots": dray.CodeBadCwd,
		root + "/none": dray.CodeBadCwd, outside: dray.CodeDenied, outside +
			"/back/in": dray.CodeDenied, root + "evil": dray.CodeDenied,
		"/": dray.CodeDenied, "relative": dray.CodeDenied, root + "/../x": dray.CodeDenied,
	} {
		p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"/bin/true"}, Dir: dir})
		if dray.CodeOf(err) != want {
			t.Errorf("%s: got %v (%s), want %s", dir, err, dray.CodeOf(err), want)
		}
		if err == nil {
			_ = p.Stdin().Close()
			_, _ = p.Wait()
		}
	}
}

// A FIFO in place of a directory does not block.
func TestFIFOAsFolder(t *testing.T) {
	root := newDir(t)
	env := newHost(t, host.Config{Roots: []string{root}}).Environment(root)
	output(t, env, dray.ProcessSpec{Argv: []string{"mkfifo", "fifo"}, Dir: root})
	if _, err := env.Start(t.Context(),
		dray.ProcessSpec{Argv: []string{"/bin/true"}, Dir: root +
			"/fifo"}); dray.CodeOf(err) != dray.CodeBadCwd {
		t.Errorf("got %v", err)
	}
	if _, err := env.Files(t.Context(), root+"/fifo"); dray.CodeOf(err) != dray.CodeBadCwd {
		t.Errorf("got %v", err)
	}
}

// Without roots nothing runs on the host, and files can be read.
func TestNoRoots(t *testing.T) {
	dir := newDir(t)
	if err := os.WriteFile(dir+"/file", []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	const file = "/home/me/.config/dray/config.yaml"
	h := newHost(t, host.Config{ConfigFile: file})
	for _, workDir := range []string{"", dir} {
		_, err := h.Environment(workDir).
			Start(t.Context(), dray.ProcessSpec{Argv: []string{"/bin/true"}})
		if dray.CodeOf(err) != dray.CodeDenied {
			t.Errorf("in %q: got %v", workDir, err)
		}
		if hint := dray.AsError(err).Hint; !strings.Contains(hint, "host.roots in "+file) {
			t.Errorf("in %q: the hint does not say where to allow it: %s", workDir, hint)
		}
	}
	checkReadOnly(t, h.Environment(dir), dir)
}

// Files outside all roots can be read and not changed; those beneath a root can be changed.
func TestFilesOutsideRoots(t *testing.T) {
	root, outside := newDir(t), newDir(t)
	if err := os.WriteFile(outside+"/file", []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, root+"/link"); err != nil {
		t.Fatal(err)
	}
	env := newHost(t, host.Config{Roots: []string{root}}).Environment(root)
	checkReadOnly(t, env, outside)
	checkReadOnly(t, env, root+"/link")
	f, err := env.Files(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	w, err := f.Create("new", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := env.Files(t.Context(), outside+"/none"); dray.CodeOf(err) != dray.CodeBadCwd {
		t.Errorf("got %v", err)
	}
}

func checkReadOnly(t *testing.T, env dray.Environment, dir string) {
	t.Helper()
	f, err := env.Files(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, info, err := f.Open("file", 0)
	if err != nil || info.Size != 7 {
		t.Fatalf("got %+v, %v", info, err)
	}
	_ = r.Close()
	tree, err := f.ReadTree(t.Context(), dray.ReadTreeOptions{Names: []string{"file"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	_, placed := f.WriteTree(t.Context(), tree, dray.WriteTreeOptions{})
	_, created := f.Create("new", 0o600)
	for what, err := range map[string]error{
		"create": created, "rename": f.Rename("file",
			"other"), "remove": f.Remove("file"), "place": placed,
	} {
		if dray.CodeOf(err) != dray.CodeDenied {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// A symlink that is swapped while the working directory is opened never leads out of the roots, for
// tools and files (EX-06).
func TestSwappedFolder(t *testing.T) {
	root, outside := newDir(t), newDir(t)
	if err := os.Mkdir(root+"/inside", 0o755); err != nil {
		t.Fatal(err)
	}
	env := newHost(t, host.Config{Roots: []string{root}}).Environment(root)
	attacker, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{
		"/bin/sh", "-c", `while :; do ln -sfn "$1" turn; ln -sfn inside turn; done`, "sh", outside,
	}, Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		attacker.Stop(0)
		_, _ = attacker.Wait()
	}()
	for inside, refused := 0, 0; inside < 50 || refused < 50; { // it has to have been there both ways
		p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"/bin/pwd", "-P"}, Dir: root +
			"/turn"})
		if err == nil {
			_ = p.Stdin().Close()
			if got, _ := io.ReadAll(p.Output(dray.Stdout)); string(got) != root+"/inside\n" {
				t.Fatalf("it ran in %q", got)
			}
			_, _ = p.Wait()
			inside++
		} else if refused++; dray.CodeOf(err) != dray.CodeBadCwd {
			t.Fatal(err)
		}
		f, err := env.Files(t.Context(), root+"/turn")
		if err != nil {
			continue
		}
		if w, err := f.Create("planted", 0o600); err == nil {
			_ = w.Close()
		}
		_ = f.Close()
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside holds %v, %v", left, err)
	}
}

// A host tool can kill its supervisor, because it has the same user. With cgroups nothing is left,
// and that is verified (EX-09).
func TestKilledSupervisor(t *testing.T) {
	launch, ungroup, err := host.WithCgroups(processtest.Launch())
	t.Cleanup(ungroup)
	if err != nil {
		t.Skipf("no groups here: %v", err)
	}
	pool := process.NewPool(launch)
	t.Cleanup(pool.Close)
	dir := newDir(t)
	env := host.New(host.Config{Roots: []string{dir}, Homes: filepath.Join(dir, "homes")}, pool).
		Environment(dir)
	for range 20 {
		p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{
			"/bin/sh", "-c", `read go; setsid setsid sleep 600 & setsid sh -c 'trap "" TERM; sleep 600' & kill -KILL $PPID; sleep 600`,
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(p.Stdin(), "\n") // killed sooner, it would not have reported the start
		_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
		_, _ = io.Copy(io.Discard, p.Output(dray.Stderr))
		exit, err := p.Wait()
		if dray.CodeOf(err) != dray.CodeAgentLost || !exit.Survivors.Proven ||
			len(exit.Survivors.PIDs) != 0 {
			t.Fatalf("got %+v, %v", exit, err)
		}
	}
	output(t, env, dray.ProcessSpec{Argv: []string{"/bin/true"}})
}
