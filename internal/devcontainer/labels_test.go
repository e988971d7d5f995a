package devcontainer

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func labelled(id, status string, age time.Duration, folder, config string) ContainerInfo {
	labels := map[string]string{}
	if folder != "" {
		labels[LabelFolder] = folder
	}
	if config != "" {
		labels[LabelConfig] = config
	}
	return ContainerInfo{
		ID: id, Status: status, Created: time.Unix(1_000_000, 0).Add(-age),
		Labels: labels,
	}
}

func TestMatch(t *testing.T) {
	dir := tempDir(t)
	write(t, dir, "real/.devcontainer/devcontainer.json", "{}")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "real"), link); err != nil {
		t.Fatal(err)
	}
	loc := locate(t, link)
	folder, config := loc.Workspace, loc.Config
	realFolder := filepath.Join(dir, "real")
	realConfig := realFolder + "/.devcontainer/devcontainer.json"
	for _, test := range []struct {
		name       string
		containers []ContainerInfo
		want       string
	}{
		{"none", nil, ""},
		{"another workspace's", []ContainerInfo{labelled("a", "running", 0, "/elsewhere", config)}, ""},
		{
			"another configuration's",
			[]ContainerInfo{labelled("a", "running", 0, folder, "/elsewhere")},
			"",
		},
		{"both labels", []ContainerInfo{labelled("a", "running", 0, folder, config)}, "a"},
		{"folder alone", []ContainerInfo{labelled("a", "running", 0, folder, "")}, "a"},
		{"both before folder alone", []ContainerInfo{
			labelled("a", "running", 0, folder, ""),
			labelled("b", "exited", 9, folder, config),
		}, "b"},
		{"newest", []ContainerInfo{
			labelled("a", "running", 2, folder, config),
			labelled("b", "running", 1, folder, config),
		}, "b"},
		{"running before newest", []ContainerInfo{
			labelled("a", "exited", 1, folder, config),
			labelled("b", "running", 2, folder, config),
		}, "b"},
		{"running before paused", []ContainerInfo{
			labelled("a", "paused", 1, folder, config),
			labelled("b", "running", 2, folder, config),
		}, "b"},
		{"removing does not exist", []ContainerInfo{labelled("a", "removing", 0, folder, config)}, ""},
		{"stopped is found", []ContainerInfo{labelled("a", "exited", 0, folder, config)}, "a"},
		{"by the real path", []ContainerInfo{labelled("a", "running", 0, realFolder, realConfig)}, "a"},
		{
			"running by the real path before exited by the link",
			[]ContainerInfo{
				labelled("a", "exited", 0, folder, config),
				labelled("b", "running", 1, realFolder, realConfig),
			},
			"b",
		},
		{"no labels", []ContainerInfo{{ID: "a", Status: "running"}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, ok := loc.Match(t.Context(), test.containers)
			if c.ID != test.want || ok != (test.want != "") {
				t.Errorf("got %q, %v, want %q", c.ID, ok, test.want)
			}
		})
	}
}

func TestOwns(t *testing.T) {
	loc := workspace(t, "{}")
	if !loc.Owns(t.Context(), labelled("a", "running", 0, loc.Workspace, "/any")) {
		t.Error("the workspace's own container is refused")
	}
	if loc.Owns(t.Context(), labelled("a", "running", 0, loc.Workspace+"2", loc.Config)) ||
		loc.Owns(t.Context(), ContainerInfo{}) {
		t.Error("another's container is taken")
	}
}
