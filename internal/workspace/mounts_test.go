package workspace

import (
	"context"
	"slices"
	"testing"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Configured mappings apply however a call names the container, and precede its own mounts (PM-14).
func TestMounts_ConfiguredMappings(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `", "workspaceFolder": "/", "userEnvProbe": "none"}`)
	run := func(args ...string) string {
		id := w.docker(append(append([]string{"run", "-d", "--init", "--network", "none"}, args...),
			busybox, "sleep", "1000000")...)
		t.Cleanup(func() {
			_, _ = w.api.ContainerRemove(context.Background(), id,
				client.ContainerRemoveOptions{Force: true})
		})
		return id
	}
	id := run("--label", "dev.dray.test=mapped",
		"--label", devcontainer.LabelComposeService+"=app",
		"--label", devcontainer.LabelComposeNumber+"=1",
		"--volume", dir+":/real", "--label", devcontainer.LabelFolder+"="+dir,
		"--label", devcontainer.LabelConfig+"="+dir+"/.devcontainer.json")
	other := run("--label", devcontainer.LabelComposeService+"=app")
	mapped := func(name string) []dray.Mount {
		return []dray.Mount{{Host: "/srv/" + name, Container: "/" + name}}
	}
	w.cfg.Named = map[string]Named{
		"id":      {ID: id, Mappings: mapped("id")},
		"label":   {Label: "dev.dray.test=mapped", Mappings: mapped("label")},
		"space":   {Workspace: dir, Mappings: mapped("space")},
		"service": {Workspace: dir, Service: "db", Mappings: mapped("service")},
		"config":  {Workspace: dir, Config: "sub/.devcontainer.json", Mappings: mapped("config")},
		"another": {ID: "nobody", Mappings: mapped("another")},
		"bare":    {ID: id},
	}
	for _, c := range []struct {
		workspace, name string
		want            []string
	}{
		{"", "id", []string{"/srv/id"}},
		{"", "label", []string{"/srv/label"}},
		{"", "space", []string{"/srv/space"}},
		{"", "bare", nil},
		{dir, "", []string{"/srv/id", "/srv/label", "/srv/space"}},
		{"", id, []string{"/srv/id", "/srv/label", "/srv/space"}},
		{dir, "space", []string{"/srv/space"}},
	} {
		mounts, err := w.Mounts(t.Context(), c.workspace, c.name)
		if err != nil {
			t.Fatal(err)
		}
		var hosts []string
		for _, m := range mounts {
			hosts = append(hosts, m.Host)
		}
		if want := slices.Concat(c.want, []string{dir}); !slices.Equal(hosts, want) {
			t.Errorf("workspace %q, container %q: %q, want %q", c.workspace, c.name, hosts, want)
		}
	}
	if mounts, err := w.Mounts(t.Context(), "", other); err != nil || len(mounts) > 0 {
		t.Errorf("another container has %+v, %v", mounts, err)
	}
}
