package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

const trustedScript, swappedScript = "echo good >>ran\n", "echo evil >>ran\n"

// guardTest is a trusted workspace whose initializeCommand runs init.sh on the host. The attacker
// is a container that exchanges the script after the CLI has been started, so after it was hashed.
type guardTest struct {
	fixture
	t      *testing.T
	parent string // of the workspace
	dir    string
}

func newGuardTest(t *testing.T, config string) guardTest {
	t.Helper()
	w := newFixture(t, Config{})
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := guardTest{w, t, parent, filepath.Join(parent, "ws")}
	t.Cleanup(func() { w.removeAll("devcontainer.local_folder=" + g.dir) })
	g.put(".devcontainer/devcontainer.json", config)
	g.put(".devcontainer/init.sh", trustedScript)
	return g
}

func (g guardTest) put(name, content string) {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// afterStart makes a shell command run on the host between the start of the CLI and its work.
func (g guardTest) afterStart(command string) {
	g.t.Helper()
	cli := filepath.Join(g.t.TempDir(), "devcontainer")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s \"$@\"\n", command, g.cfg.CLI)
	if err := os.WriteFile(cli, []byte(script), 0o700); err != nil {
		g.t.Fatal(err)
	}
	g.cfg.CLI = cli
}

// container runs a container until the end of the test.
func (g guardTest) container(args ...string) string {
	g.t.Helper()
	id := g.docker(append([]string{"run", "-d", "--init"}, args...)...)
	g.t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "docker", "rm", "-f", "-v", id).Run()
	})
	return id
}

func (g guardTest) up() error {
	_, err := g.Run(g.t.Context(), ActionUp, g.dir, noProgress)
	return err
}

func (g guardTest) ran() string {
	out, _ := os.ReadFile(filepath.Join(g.dir, "ran"))
	return strings.Join(strings.Fields(string(out)), " ")
}

const runsScript = `{"image": "` + busybox + `", "initializeCommand": "sh .devcontainer/init.sh"}`

// What was trusted is what `up` runs: no container that can change it runs meanwhile, however it
// reaches it (RT-09).
func TestUp_NoContainerChangesWhatWasTrusted(t *testing.T) {
	// exchange is the attack for a container with the configuration directory at /m
	const exchange = "echo 'echo evil >>ran' >/m/init.sh"
	tests := []struct {
		name string
		// setup returns the arguments of `docker run` and the attack in that container
		setup   func(g guardTest) (args []string, attack string)
		allowed bool
	}{
		{"the workspace", func(g guardTest) ([]string, string) {
			return []string{"-v", g.dir + ":/w"}, "echo 'echo evil >>ran' >/w/.devcontainer/init.sh"
		}, false},
		{"a folder above", func(g guardTest) ([]string, string) {
			return []string{"-v", g.parent + ":/p"}, "mv /p/ws/.devcontainer /p/ws/d && " +
				"cp -r /p/ws/d /p/ws/.devcontainer && echo 'echo evil >>ran' >/p/ws/.devcontainer/init.sh"
		}, false},
		{"a folder below", func(g guardTest) ([]string, string) {
			return []string{"-v", g.dir + "/.devcontainer:/m"}, exchange
		}, false},
		{"the file alone", func(g guardTest) ([]string, string) {
			return []string{"-v", g.dir + "/.devcontainer/init.sh:/m/init.sh"}, exchange
		}, false},
		{"a volume of a folder", func(g guardTest) ([]string, string) {
			name := "dray-test-" + filepath.Base(filepath.Dir(g.parent))
			g.docker("volume", "create", "-o", "type=none", "-o", "o=bind", "-o", "device="+g.dir, name)
			g.t.Cleanup(func() { g.docker("volume", "rm", "-f", name) })
			return []string{"-v", name + ":/w"}, "echo 'echo evil >>ran' >/w/.devcontainer/init.sh"
		}, false},
		{"a symlink to the folder", func(g guardTest) ([]string, string) {
			link := filepath.Join(g.t.TempDir(), "link")
			if err := os.Symlink(g.dir+"/.devcontainer", link); err != nil {
				g.t.Fatal(err)
			}
			return []string{"-v", link + ":/m"}, exchange
		}, false},
		{"another mount of the folder on the host", func(g guardTest) ([]string, string) {
			return []string{"-v", g.bind(g.dir+"/.devcontainer") + ":/m"}, exchange
		}, false},
		{"a mount that was added later", func(g guardTest) ([]string, string) {
			shared := g.bind(g.t.TempDir())
			g.host("mount", "--make-shared", shared)
			g.host("mkdir", shared+"/m")
			g.t.Cleanup(func() { _ = exec.Command("umount", shared+"/m").Run() })
			return []string{"-v", shared + ":/s:rslave"}, "echo 'echo evil >>ran' >/s/m/init.sh # " + shared
		}, false},
		{"what a symlink in the workspace names", func(g guardTest) ([]string, string) {
			other := filepath.Join(g.parent, "other")
			g.host("mkdir", other)
			g.host("mv", g.dir+"/.devcontainer/init.sh", other+"/init.sh")
			g.host("ln", "-s", "../../other/init.sh", g.dir+"/.devcontainer/init.sh")
			return []string{"-v", other + ":/m"}, exchange
		}, false},
		{"read-only, with CAP_SYS_ADMIN", func(g guardTest) ([]string, string) {
			return []string{
				"--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined", "-v",
				g.dir + "/.devcontainer:/m:ro",
			}, "mount -o remount,rw,bind /m && " + exchange
		}, false},
		{"in a paused container", func(g guardTest) ([]string, string) {
			return []string{"-v", g.dir + "/.devcontainer:/m"}, exchange
		}, false},
		{"read-only", func(g guardTest) ([]string, string) {
			return []string{"-v", g.dir + "/.devcontainer:/m:ro"}, exchange + " || true"
		}, true},
		{"a folder beside", func(g guardTest) ([]string, string) {
			g.host("mkdir", g.dir+"/src")
			return []string{"-v", g.dir + "/src:/m"}, exchange
		}, true},
		{"nothing of it", func(guardTest) ([]string, string) { return nil, "true" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuardTest(t, runsScript)
			args, attack := tt.setup(g)
			g.trustIt(g.dir)
			id := g.container(append(args, busybox, "sleep", "1000")...)
			if _, shared, ok := strings.Cut(attack, " # "); ok {
				g.host("mount", "--bind", g.dir+"/.devcontainer", shared+"/m")
			}
			resume := ""
			if tt.name == "in a paused container" {
				g.docker("pause", id)
				resume = "docker unpause " + id
			}
			g.afterStart(fmt.Sprintf("%s\ndocker exec %s sh -c %q", resume, id, attack))
			err := g.up()
			if tt.allowed {
				if err != nil || g.ran() != "good" {
					t.Errorf("got %v, the host ran %q", err, g.ran())
				}
				return
			}
			if g.ran() != "" {
				t.Errorf("the host ran %q", g.ran())
			}
			name := g.docker("inspect", "-f", "{{slice .Name 1}}", id)
			wantCode(t, "up", err, dray.CodeContainerUnavailable)
			if err != nil && !strings.Contains(err.Error(), name+" runs and can change") {
				t.Errorf("the error does not name the container %s: %v", name, err)
			}
			// the user follows the hint
			g.docker("rm", "-f", id)
			g.cfg.CLI = newFixture(t, Config{}).cfg.CLI
			if err := g.up(); err != nil || g.ran() != "good" {
				t.Errorf("after its end: %v, the host ran %q", err, g.ran())
			}
		})
	}
}

// host runs a program on the host.
func (g guardTest) host(argv ...string) {
	g.t.Helper()
	out, err := exec.CommandContext(g.t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		g.t.Fatalf("%q: %v: %s", argv, err, out)
	}
}

// bind mounts a directory on another one, which it returns.
func (g guardTest) bind(dir string) string {
	g.t.Helper()
	if os.Getuid() != 0 {
		g.t.Skip("mounts on the host")
	}
	point := g.t.TempDir()
	g.host("mount", "--bind", dir, point)
	g.t.Cleanup(func() { _ = exec.Command("umount", "-l", point).Run() })
	return point
}

// The container that a failed `up` left is stopped before anything is hashed: its processes see the
// workspace (RT-09).
func TestUp_StopsItsIncompleteContainerFirst(t *testing.T) {
	g := newGuardTest(t, `{"image": "`+busybox+`", "initializeCommand": "sh .devcontainer/init.sh",
		"onCreateCommand": "echo sleep 1000 >/keep; test -e ready"}`)
	g.trustIt(g.dir)
	wantCode(t, "the first up", g.up(), dray.CodeContainerFailed)
	id := g.containers("devcontainer.local_folder=" + g.dir)[0]
	// it can no longer do that
	g.afterStart(fmt.Sprintf(`docker exec %s sh -c 'echo "echo evil >>ran" >/workspaces/ws/.devcontainer/init.sh'`, id))
	wantCode(t, "the second up", g.up(), dray.CodeContainerFailed)
	g.put("ready", "")
	if err := g.up(); err != nil || g.ran() != "good good good" {
		t.Errorf("got %v, the host ran %q", err, g.ran())
	}
}

// A container that is started between hash and use ends the `up` before anything of it runs (RT-09).
func TestUp_EndsWhenAContainerIsStarted(t *testing.T) {
	g := newGuardTest(t, runsScript)
	g.trustIt(g.dir)
	id := g.docker("create", "-v", g.dir+":/w", busybox, "sh", "-c",
		"echo 'echo evil >>ran' >/w/.devcontainer/init.sh; touch /w/swapped; sleep 1000")
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "docker", "rm", "-f", id).Run() })
	g.afterStart("docker start " + id + "; while ! test -e " + g.dir + "/swapped; do :; done")
	err := g.up()
	wantCode(t, "up", err, dray.CodeContainerUnavailable)
	if err != nil && !strings.Contains(err.Error(), " was started meanwhile and can change") {
		t.Errorf("got %v", err)
	}
	if g.ran() != "" || len(g.containers("devcontainer.local_folder="+g.dir)) != 0 {
		t.Errorf("the host ran %q, containers %q", g.ran(),
			g.containers("devcontainer.local_folder="+g.dir))
	}
}

// Containers of the same repository run beside each other where only the pinned configuration is
// read on the host, and a stopped container is started again (RT-09).
func TestUp_BesideContainersOfTheRepository(t *testing.T) {
	g := newGuardTest(t, `{"image": "`+busybox+`"}`)
	g.trustIt(g.dir)
	g.container("-v", g.dir+":/w", busybox, "sleep", "1000")
	for _, want := range []string{"the first up", "the second up"} {
		if err := g.up(); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if _, err := g.Run(t.Context(), ActionStop, g.dir, noProgress); err != nil {
			t.Fatal(err)
		}
	}
	// but a container that can rename the folder decides what is mounted
	above := g.container("-v", g.parent+":/p", busybox, "sleep", "1000")
	wantCode(t, "with a container of the folder above", g.up(), dray.CodeContainerUnavailable)
	g.docker("rm", "-f", above)
	// a script on the host asks for more
	g.put(".devcontainer/devcontainer.json", runsScript)
	g.trustIt(g.dir)
	wantCode(t, "with a script for the host", g.up(), dray.CodeContainerUnavailable)
}

// A hard link of a trust input may be in any folder that any container has mounted (RT-09).
func TestUp_RefusesHardLinks(t *testing.T) {
	g := newGuardTest(t, runsScript)
	other := filepath.Join(g.parent, "other")
	g.host("mkdir", other)
	g.host("ln", g.dir+"/.devcontainer/init.sh", other+"/init.sh")
	g.trustIt(g.dir)
	id := g.container("-v", other+":/m", busybox, "sleep", "1000")
	g.afterStart("docker exec " + id + ` sh -c "echo 'echo evil >>ran' >/m/init.sh"`)
	err := g.up()
	wantCode(t, "up", err, dray.CodeContainerUnavailable)
	if g.ran() != "" || !strings.Contains(err.Error(), "init.sh has another name (a hard link)") {
		t.Errorf("got %v, the host ran %q", err, g.ran())
	}
}

// composeProject names the compose project of the workspace in its .env, and removes its containers
// at the end of the test.
func (g guardTest) composeProject() string {
	project := strings.ToLower(filepath.Base(g.parent) + filepath.Base(filepath.Dir(g.parent)))
	g.put(".env", "COMPOSE_PROJECT_NAME="+project+"\n")
	g.t.Cleanup(func() { g.removeAll("com.docker.compose.project=" + project) })
	return project
}

// A compose service that starts first sees the workspace, but compose has read its files. The next
// `up` stops it (RT-09).
func TestUp_ComposeHasReadItsFiles(t *testing.T) {
	g := newGuardTest(t, `{"dockerComposeFile": "compose.yml", "service": "app",
		"workspaceFolder": "/w", "initializeCommand": "sh .devcontainer/init.sh"}`)
	project := g.composeProject()
	g.put(".devcontainer/app.env", "FROM=good\n")
	g.put(".devcontainer/compose.yml", `
version: "3"
services:
  app: {image: "`+busybox+`", command: sleep 1000, volumes: ["..:/w"], env_file: [app.env],
    network_mode: none, depends_on: [first]}
  first: {image: "`+busybox+`", volumes: ["..:/w"], network_mode: none, stop_grace_period: 0s,
    command: sh -c "cd /w/.devcontainer; test -e ../swapped || echo FROM=evil >app.env; sleep 1000"}
`)
	g.trustIt(g.dir)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	app := g.containers("devcontainer.local_folder=" + g.dir)[0]
	if out := g.docker("inspect", "-f", "{{.Config.Env}}", app); !strings.Contains(out, "FROM=good") {
		t.Errorf("the container has %s", out)
	}
	g.put("swapped", "")
	g.put(".devcontainer/app.env", "FROM=good\n")
	g.docker("stop", "-t", "0", app)
	first := g.docker("ps", "-q", "--filter", "label=com.docker.compose.project="+project,
		"--filter", "label=com.docker.compose.service=first")
	g.afterStart("docker exec " + first + ` sh -c "echo 'echo evil >>ran' >/w/.devcontainer/init.sh"`)
	if err := g.up(); err != nil || g.ran() != "good good" {
		t.Errorf("got %v, the host ran %q", err, g.ran())
	}
	if out := g.docker("inspect", "-f", "{{.State.Status}}", first, app); out != "running\nrunning" {
		t.Errorf("afterwards the services are %q", out)
	}
}

// Compose gets the project that was trusted, so a container may have its files: only `.env` is read
// again (RT-09).
func TestUp_ComposeBesideContainersWithItsFiles(t *testing.T) {
	g := newGuardTest(t, `{"dockerComposeFile": "compose.yml", "service": "app", "workspaceFolder": "/"}`)
	g.composeProject()
	g.put(".devcontainer/app.env", "FROM=good\n")
	g.put(".devcontainer/compose.yml", `
version: "3"
services:
  app: {image: "`+busybox+`", command: sleep 1000, env_file: [app.env], network_mode: none}
`)
	g.trustIt(g.dir)
	whole := g.container("-v", g.dir+":/w", busybox, "sleep", "1000")
	wantCode(t, "with a container that can change .env", g.up(), dray.CodeContainerUnavailable)
	g.docker("rm", "-f", whole)
	beside := g.container("-v", g.dir+"/.devcontainer:/m", busybox, "sleep", "1000")
	g.afterStart("docker exec " + beside + ` sh -c "echo FROM=evil >/m/app.env; echo evil >/m/compose.yml"`)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	app := g.containers("devcontainer.local_folder=" + g.dir)[0]
	if out := g.docker("inspect", "-f", "{{.Config.Env}}", app); !strings.Contains(out, "FROM=good") {
		t.Errorf("the container has %s", out)
	}
}

// A devcontainer CLI that tools can replace is not started (RT-09).
func TestUp_RefusesCLIOfWorkspace(t *testing.T) {
	for name, place := range map[string]func(g guardTest){
		"in the workspace": func(g guardTest) { g.cfg.CLI = g.dir + "/node_modules/.bin/devcontainer" },
		"by a symlink elsewhere": func(g guardTest) {
			g.cfg.CLI = g.t.TempDir() + "/devcontainer"
			g.host("ln", "-s", g.dir+"/node_modules/.bin/devcontainer", g.cfg.CLI)
		},
		"by a symlink in the workspace": func(g guardTest) {
			g.host("ln", "-s", g.cfg.CLI, g.dir+"/devcontainer")
			g.cfg.CLI = g.dir + "/devcontainer"
		},
		"by another path of the workspace": func(g guardTest) {
			link := g.t.TempDir() + "/link"
			g.host("ln", "-s", g.dir, link)
			g.cfg.CLI = link + "/node_modules/.bin/devcontainer"
		},
		"beside it in the repository": func(g guardTest) {
			g.host("git", "-C", g.parent, "init", "-q")
			g.cfg.CLI = g.parent + "/devcontainer"
			g.host("cp", g.dir+"/node_modules/.bin/devcontainer", g.cfg.CLI)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuardTest(t, `{"image": "`+busybox+`"}`)
			g.put("node_modules/.bin/devcontainer", "#!/bin/sh\necho evil >>"+g.dir+"/ran\n")
			g.host("chmod", "+x", g.dir+"/node_modules/.bin/devcontainer")
			place(g)
			g.trustIt(g.dir)
			err := g.up()
			wantCode(t, "up", err, dray.CodeWorkspaceUntrusted)
			if g.ran() != "" {
				t.Errorf("the host ran %q", g.ran())
			}
		})
	}
}
