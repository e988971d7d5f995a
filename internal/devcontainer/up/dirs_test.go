package up

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

// stranger is the uid of another user.
const stranger = 65534

// foreignTemp is a directory for temporary files of all users, in which another user was the first
// to create the directory of the reference CLI. That user adds a mount of the host to each compose
// file that appears there.
func foreignTemp(t *testing.T) (dir, composeFiles string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs files of two users")
	}
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	own := filepath.Join(dir, "devcontainercli-"+self.Username)
	composeFiles = filepath.Join(own, "docker-compose")
	err = errors.Join(os.Chmod(dir, os.ModeSticky|0o777), os.MkdirAll(composeFiles, 0o755),
		os.Chown(own, stranger, stranger), os.Chown(composeFiles, stranger, stranger))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(watch, composeFiles, unix.IN_CLOSE_WRITE)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 4096); ; {
			if _, err := events.Read(buf); err != nil {
				return
			}
			files, _ := filepath.Glob(composeFiles + "/*.yml")
			for _, file := range files {
				addHostMount(t, file)
			}
		}
	}()
	t.Cleanup(func() {
		_ = events.Close()
		<-done
	})
	return dir, composeFiles
}

func addHostMount(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(content), "/:/host") {
		return
	}
	changed := strings.Replace(string(content), "services:\n  'app':",
		"services:\n  'app':\n    volumes: [\"/:/host:ro\"]", 1)
	if err := os.WriteFile(file+".new", []byte(changed), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Error(err)
	}
}

const composeApp = `
version: "3"
services:
  app: {image: "dray-test/busybox:latest", command: sleep 1000, network_mode: none, stop_grace_period: 0s}
`

func composeWorkspace(t *testing.T) *upTest {
	t.Helper()
	return newUpTest(t, map[string]string{
		".devcontainer/devcontainer.json": `{"dockerComposeFile": "compose.yml", "service": "app", "initializeCommand": "stat -c '%a %u' \"$TMPDIR\" >temp; echo \"$TMPDIR\" >>temp"}`,
		".devcontainer/compose.yml":       composeApp,
	})
}

// Another user of the machine decides nothing about `up`: what the CLI writes and reads again is in
// directories of this user alone, now and when the stopped container is started again (EX-06).
func TestUp_OtherUsersDecideNothing(t *testing.T) {
	t.Parallel()
	u := composeWorkspace(t)
	temp, _ := foreignTemp(t)
	u.env = append(u.env, "TMPDIR="+temp)
	for range 2 {
		result, err := u.up()
		if err != nil {
			t.Fatal(err)
		}
		if binds := u.docker("inspect", "-f", "{{.HostConfig.Binds}}", result.ContainerID); binds != "[]" &&
			binds != "<no value>" {
			t.Errorf("the container has the mounts %s", binds)
		}
		for path := range strings.SplitSeq(u.docker("inspect", "-f",
			"{{index .Config.Labels \""+devcontainer.LabelComposeFiles+"\"}}", result.ContainerID), ",") {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("a compose file of the container: %v", err)
			}
		}
		u.docker("stop", result.ContainerID)
	}
	seen, err := os.ReadFile(filepath.Join(u.loc.Workspace, "temp"))
	mode, dir, _ := strings.Cut(strings.TrimSpace(string(seen)), "\n")
	if err != nil || mode != "700 0" || !strings.HasPrefix(dir, u.state) {
		t.Errorf("TMPDIR %s of mode and owner %s, %v", dir, mode, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("TMPDIR is left: %v", err)
	}
}

// A container that was made by the CLI itself is refused while another user can change the compose
// file that its labels name, also when that is gone (EX-06).
func TestUp_RefusesComposeFilesOfOthers(t *testing.T) {
	t.Parallel()
	u := composeWorkspace(t)
	_, composeFiles := foreignTemp(t)
	file := filepath.Join(composeFiles, "docker-compose.devcontainer.containerFeatures-1.yml")
	tests := map[string]struct {
		label string
		want  bool
	}{
		"of another user":           {file, true},
		"gone":                      {file + ".gone", true},
		"a symlink of another user": {foreignLink(t, t.TempDir()), true},
		"own":                       {filepath.Join(u.state, filepath.Base(file)), false},
		"own, in a shared directory": {
			filepath.Join(sharedTemp(t), "devcontainercli-root", filepath.Base(file)), false,
		},
		"missing in a shared directory": {filepath.Join(sharedTemp(t), filepath.Base(file)), true},
		"of the workspace":              {filepath.Join(filepath.Dir(file), "compose.yml"), false},
	}
	for name, tt := range tests {
		o := Options{Container: devcontainer.ContainerInfo{
			Name: "c", Labels: map[string]string{devcontainer.LabelComposeFiles: "/w/compose.yml," + tt.label},
		}}
		err := o.checkComposeFiles()
		if tt.want != (dray.CodeOf(err) == dray.CodeContainerFailed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// sharedTemp is a directory like /tmp.
func sharedTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// foreignLink is a file in a directory of ours, reached by a symlink that another user made.
func foreignLink(t *testing.T, ours string) string {
	t.Helper()
	name := "docker-compose.devcontainer.build-1.yml"
	devtest.Write(t, ours, name, "")
	link := filepath.Join(sharedTemp(t), "link")
	if err := errors.Join(os.Symlink(ours, link), os.Lchown(link, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(link, name)
}
