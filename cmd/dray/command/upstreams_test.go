package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tools that an MCP server lists apply without the files of the policies: their text applies
// with a reload, which is recorded, and an invalid text does not end the call that starts a server
// (CF-04, MC-06).
func TestListedToolsKeepPolicies(t *testing.T) {
	root := t.TempDir()
	program, policies := filepath.Join(root, "server"), filepath.Join(root, "p.cedar")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"../../../internal/mcp/upstream/testdata/hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(policies, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("permit (principal, action, resource);")
	d, _ := newConfiguredDaemon(t, fmt.Sprintf("host: {roots: [%s]}\npolicy: {files: [%s]}\n"+
		"mcp: {servers: {good: {argv: [%s, good], workspace: %[1]s, environment: host}}}\n",
		root, policies, program))
	<-d.upstreams.started
	old := d.current.Load()
	for _, text := range []string{"not Cedar", "forbid (principal, action, resource);"} {
		write(text)
		server := d.upstreams.servers["good"]
		d.upstreams.mu.Lock()
		server.listed = false
		d.upstreams.mu.Unlock()
		if err := d.listUpstream(t.Context(), server); err != nil {
			t.Errorf("with the policies %q: %v", text, err)
		}
		now := d.current.Load()
		if now == old || now.policies != old.policies {
			t.Errorf("with the policies %q: a new generation %v, its policies are others %v", text,
				now != old, now.policies != old.policies)
		}
		if _, err := now.tools.Find("good__t0"); err != nil {
			t.Error(err)
		}
	}
}
