package features

import (
	"os"
	"strings"
	"testing"
)

// Who follows docs/how-to/remove.md finds nothing of dray in a container that stays: no file, no
// process. The containers of workspaces are removed.
func TestRemovedWithoutTrace(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/.devcontainer.json": withImages(`{"image": "BUSYBOX"}`)})
	box := plainContainer(t)
	d := startDaemon(t, "containers: {box: {id: "+box+"}}\ntrust: {workspaces: ["+root+"/app]}")
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	for _, target := range []map[string]any{{"container": "box"}, {"workspace": root + "/app"}} {
		target["tool"], target["input"] = "exec", map[string]any{"argv": []string{"true"}}
		if a, err := d.call(t.Context(), "?wait_ms=60000", target); err != nil ||
			a.at("/status") != "succeeded" {
			t.Fatalf("%v: %s", err, a.raw)
		}
	}
	page, err := os.ReadFile("../docs/how-to/remove.md")
	if err != nil {
		t.Fatal(err)
	}
	const inContainer = "rm -rf /.dray-agent /dev/.dray-agent"
	if !strings.Contains(string(page), inContainer) {
		t.Fatalf("the page does not say %s", inContainer)
	}
	if r := d.dray(t.Context(), nil, "workspace", "rm", root+"/app"); r.code != 0 {
		t.Fatalf("rm: %s", r.stderr)
	}
	d.end(t)
	before, err := docker(t.Context(), "diff", box)
	if err != nil || !strings.Contains(before, "/.dray-agent") {
		t.Errorf("there is nothing to remove: %v %s", err, before)
	}
	if _, err := docker(t.Context(), "exec", "--user", "0", box, "sh", "-c", inContainer); err != nil {
		t.Fatal(err)
	}
	after, err := docker(t.Context(), "diff", box)
	if err != nil || strings.Contains(after, "dray") {
		t.Errorf("in the container: %v %s", err, after)
	}
	processes, err := docker(t.Context(), "top", box, "-eo", "pid,args")
	if err != nil || strings.Contains(processes, "dray") {
		t.Errorf("processes in the container: %v %s", err, processes)
	}
	if ids, err := containersOf(t.Context(), root+"/app"); err != nil || len(ids) > 0 {
		t.Errorf("containers of the workspace: %v %v", err, ids)
	}
}
