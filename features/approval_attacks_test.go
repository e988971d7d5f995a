package features

import (
	"os"
	"testing"
)

// In a container an approval is of a directory as it is called there, where no symlink leads
// elsewhere (SE-04).
func TestApprovalOfDirectoryInContainer(t *testing.T) {
	g := startGuarded(t)
	app := g.root + "/app"
	in := func(cwd, command string) map[string]any {
		body := g.body(app, "shell", map[string]any{"command": command})
		body["paths"], body["cwd"] = "container", cwd
		return body
	}
	g.runs(in("/tmp", "mkdir a b && ln -s a link"))
	for _, cwd := range []string{"/tmp/link", "/tmp/a"} {
		body := in(cwd, "eval 'pwd -P > /workspaces/app/"+cwd[5:]+"'")
		g.approve(g.pending(body))
		got, err := g.call(t.Context(), "", body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(app + "/" + cwd[5:])
		if ran := err == nil; ran != (cwd == "/tmp/a") || !ran && got.at("/error/code") != "bad_cwd" {
			t.Errorf("in %s, ran %v: %s", cwd, ran, got.raw)
		}
	}
}
