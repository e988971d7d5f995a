package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// labelTest makes containers of images with labels.
type labelTest struct {
	fixture
	t   *testing.T
	dir string // of a workspace
}

// image builds an image with labels, as anybody may publish one.
func (l labelTest) image(name string, labels ...string) string {
	l.t.Helper()
	dir := l.t.TempDir()
	text := "FROM " + busybox + "\n"
	for _, label := range labels {
		text += "LABEL \"" + strings.Replace(label, "=", "\"=\"", 1) + "\"\n"
	}
	if err := os.WriteFile(dir+"/Dockerfile", []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.t.Setenv("DOCKER_BUILDKIT", "0") // the classic builder needs neither registry nor plugin
	tag := "dray-test/labels-" + name + ":latest"
	id := l.docker("build", "-q", "-t", tag, dir)
	l.t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", tag, id).Run() })
	return tag
}

// run runs a container of an image, with the labels that the user gives it.
func (l labelTest) run(image string, labels ...string) string {
	l.t.Helper()
	args := []string{"run", "-d", "--init", "--network", "none"}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	id := l.docker(append(args, image, "sleep", "1000000")...)
	l.t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", "-v", id).Run() })
	return id
}

func (l labelTest) workspaceLabels() []string {
	return []string{
		devcontainer.LabelFolder + "=" + l.dir,
		devcontainer.LabelConfig + "=" + l.dir + "/.devcontainer.json",
	}
}

// service returns the labels of a compose service, and more.
func (l labelTest) service(name string, more ...string) []string {
	return append(more, devcontainer.LabelComposeProject+"=p"+filepath.Base(filepath.Dir(l.dir)),
		devcontainer.LabelComposeService+"="+name)
}

const number = devcontainer.LabelComposeNumber + "="

// runApp runs the container of the workspace, which is a service of a compose project.
func (l labelTest) runApp() {
	l.run(busybox, append(l.workspaceLabels(), l.service("app", number+"1")...)...)
}

type makeImage = func(labels ...string) string

// A label that the image brings is not the container's own, wherever labels are read (EX-01,
// RT-12).
func TestLabels_OfImagesDoNotCount(t *testing.T) {
	const role = "dev.dray.test=role"
	for _, test := range []struct {
		name string
		// make makes containers and returns the one that the request must reach, or "".
		make func(l labelTest, image makeImage) string
		// ask returns the container that a request reaches.
		ask func(l labelTest) (dray.Environment, error)
	}{
		{"configured label", func(l labelTest, image makeImage) string {
			l.run(image(role))
			return ""
		}, byLabel},
		{"configured label beside its owner", func(l labelTest, image makeImage) string {
			own := l.run(busybox, role)
			l.run(image(role))
			return own
		}, byLabel},
		{"configured label beside its stopped owner", func(l labelTest, image makeImage) string {
			own := l.run(busybox, role)
			l.docker("kill", own)
			l.run(image(role))
			return ""
		}, byLabel},
		{"both set the same value", func(l labelTest, image makeImage) string {
			l.run(image(role), role)
			return ""
		}, byLabel},
		{"the image sets another value", func(l labelTest, image makeImage) string {
			return l.run(image("dev.dray.test=other"), role)
		}, byLabel},
		{"the name of the image was given to another one", func(l labelTest, image makeImage) string {
			tag := image(role)
			l.run(tag)
			l.docker("tag", busybox, tag)
			return ""
		}, byLabel},
		{"committed from its owner", func(l labelTest, _ makeImage) string {
			own := l.run(busybox, role)
			id := l.docker("commit", own)
			l.t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", id).Run() })
			l.run(id)
			return own
		}, byLabel},
		{"service", func(l labelTest, image makeImage) string {
			l.runApp()
			l.run(image(l.service("db")...))
			return ""
		}, byService},
		{"service with a number", func(l labelTest, image makeImage) string {
			l.runApp()
			l.run(image(l.service("db", number+"1")...))
			return ""
		}, byService},
		{"service with number 0 beside its owner", func(l labelTest, image makeImage) string {
			l.runApp()
			own := l.run(busybox, l.service("db", number+"1")...)
			l.run(image(l.service("db", number+"0")...))
			l.run(image(l.service("db")...))
			return own
		}, byService},
		{"service whose image was built by compose", func(l labelTest, image makeImage) string {
			l.runApp()
			built := image(l.service("db")...)
			return l.run(built, l.service("db", number+"1")...)
		}, byService},
		{"service without a number", func(l labelTest, _ makeImage) string {
			l.runApp()
			l.run(busybox, l.service("db")...)
			return ""
		}, byService},
		{"workspace", func(l labelTest, image makeImage) string {
			l.run(image(l.workspaceLabels()...))
			return ""
		}, byWorkspace},
		{"workspace beside its owner", func(l labelTest, image makeImage) string {
			own := l.run(busybox, l.workspaceLabels()...)
			l.run(image(l.workspaceLabels()...))
			return own
		}, byWorkspace},
		{"folder alone beside its owner", func(l labelTest, image makeImage) string {
			own := l.run(busybox, l.workspaceLabels()...)
			l.run(image(l.workspaceLabels()[0]))
			return own
		}, byWorkspace},
		{"configuration file alone", func(l labelTest, image makeImage) string {
			return l.run(image(l.workspaceLabels()[1]), l.workspaceLabels()[0])
		}, byWorkspace},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newFixture(t, Config{})
			l := labelTest{w, t, w.project(`{"image": "` + busybox + `", "workspaceFolder": "/"}`)}
			images := 0
			want := test.make(l, func(labels ...string) string {
				images++
				return l.image(strings.Repeat("i", images), labels...)
			})
			w.cfg.Named = map[string]Named{
				"label": {Label: role}, "service": {Workspace: l.dir, Service: "db"},
			}
			env, err := test.ask(l)
			switch {
			case want == "" && err == nil:
				t.Errorf("a container of the image was reached: %s", env.Capabilities().Container.Name)
			case want == "" && dray.AsError(err).Hint == "":
				t.Errorf("no hint: %v", err)
			case want != "" && err != nil:
				t.Error(err)
			case want != "" && env.Capabilities().Container.ID != want:
				t.Errorf("reached %s, want %s", env.Capabilities().Container.ID, want)
			}
		})
	}
}

func byLabel(l labelTest) (dray.Environment, error) { return l.env(request{name: "label"}) }

func byService(l labelTest) (dray.Environment, error) { return l.env(request{name: "service"}) }

// byWorkspace asks for a trusted workspace, which a container of an image must not stand for.
func byWorkspace(l labelTest) (dray.Environment, error) {
	l.trustIt(l.dir)
	return l.env(request{workspace: l.dir})
}

// An image turns no call by its working directory to its container.
func TestLabels_ImageOfAllDirectories(t *testing.T) {
	w := newFixture(t, Config{})
	l := labelTest{fixture: w, t: t}
	l.run(l.image("root", devcontainer.LabelFolder+"=/"))
	if folder, ok := w.Nearest(t.Context(), t.TempDir(), "/"); ok {
		t.Errorf("the workspace of an empty directory is %q", folder)
	}
	list, err := w.List(t.Context())
	for _, info := range list {
		if info.Folder == "/" {
			t.Errorf("/ is a workspace: %+v", info)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// The labels of a container whose image was removed do not count: nobody can tell whose they are.
func TestLabels_ImageRemoved(t *testing.T) {
	w := newFixture(t, Config{Named: map[string]Named{"label": {Label: "dev.dray.test=removed"}}})
	l := labelTest{fixture: w, t: t}
	image := l.image("removed", "dev.dray.test=removed")
	id := l.docker("create", image, "true")
	t.Cleanup(func() { w.docker("rm", "-f", id) })
	w.docker("rmi", "-f", image)
	_, err := w.env(request{name: "label"})
	wantCode(t, "a container without an image", err, dray.CodeContainerNotFound)
}
