package transfer

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// testContainer is a real container with the user vscode.
type testContainer struct {
	dray.Environment
	t  *testing.T
	id string
}

// newTestContainer starts a container with the arguments of `docker run`.
func newTestContainer(t *testing.T, way docker.Options, mounts []dray.Mount,
	args ...string,
) testContainer {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	way.Lease, way.RunDir, way.Version, way.Log = 30*time.Second, t.TempDir(), "test", zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	engine, err := docker.NewEngine(docker.EndpointConfig{}, way)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	image := cmp.Or(os.Getenv("DRAY_TEST_DEBIAN"), "dray-test/debian:latest")
	args = append([]string{"run", "-d", "--init", "--network", "none"}, args...)
	v := testContainer{t: t}
	v.id = strings.TrimSpace(dockerCLI(t, append(args, image, "sleep", "1000000")...))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", "-v", v.id).Run() })
	c, err := engine.Inspect(t.Context(), v.id)
	if err != nil {
		t.Fatal(err)
	}
	v.Environment, err = engine.Environment(t.Context(),
		c, agent.Spec{User: "vscode", WorkspaceFolder: "/ws", Mounts: mounts})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func dockerCLI(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", args...).Output()
	if err != nil {
		t.Fatalf("docker %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// sh runs a script as a user of the container.
func (v testContainer) sh(user, script string) string {
	v.t.Helper()
	return dockerCLI(v.t, "exec", "-u", user, v.id, "sh", "-ec", script)
}

// Files of a real container arrive unchanged, if the user that tools run as may read them (SY-01,
// SY-02).
func TestFetch_Container(t *testing.T) {
	v := newTestContainer(t, docker.Options{Transport: docker.TransportAuto}, nil)
	w := newFixture(t, nil)
	v.sh("root", `mkdir -p /ws; chown vscode /ws; mkdir /tmp/out; chown vscode /tmp/out; echo secret >/tmp/out/secret; chmod 600 /tmp/out/secret`)
	v.sh("vscode", `cd /tmp/out; printf 'alpha' >a; mkdir -p d/e; printf 'beta' >d/e/b; ln -s /etc/passwd link; mkfifo fifo; head -c 700000 /dev/zero >zeros`)
	want := []string{
		"/tmp/out/fifo path_invalid", "/tmp/out/link path_invalid",
		"/tmp/out/secret denied",
	}
	r, err := w.Fetch(t.Context(), v, Request{Paths: []string{"/tmp/out"}})
	if dray.CodeOf(err) != dray.CodeSyncRefused || !slices.Equal(refusedCodes(r), want) {
		t.Errorf("got %+v, %v", r, err)
	}
	w.wantRoot(nil)
	r, err = w.Fetch(t.Context(), v, Request{Paths: []string{"/tmp/out"}, SkipRefused: true})
	if err != nil || !slices.Equal(refusedCodes(r), want) || r.Bytes != 700_009 {
		t.Errorf("got %+v, %v", r, err)
	}
	w.wantRoot(map[string]string{
		"out/a": "alpha", "out/d/e/b": "beta",
		"out/zeros": strings.Repeat("\x00", 700_000),
	})
}

// killAgent kills all processes of dray in a container.
const killAgent = `for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in *[d]ray*) tr '\0' ' ' <$p/cmdline; kill -9 ${p#/proc/};; esac; done`

// A large file arrives although the agent is killed: the transfer is resumed (SY-09).
func TestFetch_AgentKilled(t *testing.T) {
	for _, way := range []docker.Options{
		{Transport: docker.TransportAuto}, {Transport: docker.TransportStdio},
	} {
		t.Run(string(way.Transport), func(t *testing.T) {
			v := newTestContainer(t, way, nil)
			w := newFixture(t, func(c *Config) { c.Limits = dray.TreeLimits{} })
			v.sh("vscode", `mkdir /tmp/out; cd /tmp/out; for i in 1 2 3; do yes $i$i$i$i | head -c 20000000 >$i; done`)
			want := v.sh("vscode", `cd /tmp/out; sha256sum 1 2 3 | cut -d' ' -f1`)
			var once sync.Once
			killed := ""
			r, err := w.Fetch(t.Context(), v, Request{
				Paths: []string{"/tmp/out"},
				Progress: func(p Progress) {
					if p.Bytes > 30_000_000 { // it is in the second file
						once.Do(func() { killed = v.sh("root", killAgent) })
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range r.Files {
				got += f.SHA256 + "\n"
			}
			t.Logf("killed %q", killed)
			if got != want || killed == "" {
				t.Errorf("got %s, want %s; killed %q", got, want, killed)
			}
		})
	}
}

// Outputs in the mount are listed, others are copied (SY-11).
func TestDeclared_Container(t *testing.T) {
	host := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(host, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	v := newTestContainer(t, docker.Options{Transport: docker.TransportAuto},
		[]dray.Mount{{Host: host, Container: "/ws"}}, "-v", host+":/ws")
	w := newFixture(t, nil)
	v.sh("vscode", `cd /ws; mkdir out; printf 'alpha' >out/a; printf 'beta' >/tmp/b`)
	r := w.FetchDeclared(t.Context(), v,
		Request{ID: "the-id", Dir: "/ws", Paths: []string{"out", "/tmp/b", "none"}})
	if r.State != dray.SyncComplete || !slices.Equal(refusedCodes(r),
		[]string{host + "/none not_found"}) {
		t.Errorf("got %+v", r)
	}
	if len(r.Files) != 2 || r.Files[0].Path != host+"/out/a" ||
		r.Files[0].Action != dray.FileMounted || r.Files[0].SHA256 != sum("alpha") {
		t.Errorf("got %+v", r.Files)
	}
	w.wantRoot(map[string]string{"the-id/tmp/b": "beta"})
}

// After the loss of the container the error says so, and nothing was written.
func TestFetch_ContainerLost(t *testing.T) {
	v := newTestContainer(t, docker.Options{Transport: docker.TransportAuto}, nil)
	w := newFixture(t, nil)
	dockerCLI(t, "kill", v.id)
	_, err := w.Fetch(t.Context(), v, Request{Paths: []string{"/tmp/x"}})
	if code := dray.CodeOf(err); code != dray.CodeContainerUnavailable &&
		code != dray.CodeContainerNotFound {
		t.Errorf("got %v", err)
	}
	w.wantRoot(nil)
}

// Pushed files belong to the container's user, and no symlink leads out of the workspace folder.
func TestPush_Container(t *testing.T) {
	home := t.TempDir()
	write(t, home+"/src/a", "alpha")
	write(t, home+"/src/deep/b", strings.Repeat("beta", 100_000))
	v := newTestContainer(t, docker.Options{Transport: docker.TransportAuto}, nil)
	w := newFixture(t,
		func(c *Config) { c.Trusted = func(context.Context, string) bool { return true } })
	v.sh("root", `mkdir -p /ws /outside; chown vscode /ws /outside; ln -s /outside /ws/out; chown -h vscode /ws/out`)
	r, err := w.Push(t.Context(), v, Request{Paths: []string{"src"}, Workspace: home})
	if err != nil || r.State != dray.SyncComplete || r.Bytes != 400_005 {
		t.Fatalf("got %+v, %v", r, err)
	}
	got := v.sh("root", `cd /ws; stat -c '%n %U %a %s' src src/a src/deep/b; cat src/a; sha256sum src/deep/b | cut -d' ' -f1; ls -A`)
	want := "src vscode 700 4096\nsrc/a vscode 600 5\nsrc/deep/b vscode 600 400000\nalpha" +
		sum(strings.Repeat("beta", 100_000)) + "\nout\nsrc\n"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if changes := Changes(r, dray.KindContainer); len(changes) != 2 ||
		changes[0].Path != "/ws/src/a" || changes[0].Environment != dray.KindContainer {
		t.Errorf("changed %+v", changes)
	}
	r, err = w.Push(t.Context(), v, Request{
		Paths: []string{"src"}, Workspace: home,
		Destination: "out",
	})
	if dray.CodeOf(err) != dray.CodeSyncRefused || r.State != dray.SyncRefused {
		t.Errorf("through a link: got %+v, %v", r, err)
	}
	if left := v.sh("root", `ls -A /outside`); left != "" {
		t.Errorf("outside there is %s", left)
	}
}
