package command

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/tool"
)

// A call that was accepted and queued does not start after the trust has ended, or with another
// declaration than the present one (RT-15).
func TestProjectTools_ChangedWhileQueued(t *testing.T) {
	daemon, err := tool.NewRegistry(tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const text = "- {name: check, argv: [make]}"
	untrusted := dray.Errorf(dray.CodeWorkspaceUntrusted, "revoked")
	file := &trust.ToolsFile{Workspace: "/w", Path: "/w/.dray/tools.yaml", Text: []byte(text)}
	p := &projectTools{
		read:   func(context.Context, string) (*trust.ToolsFile, error) { return file, nil },
		daemon: daemon, maxTimeout: time.Hour,
	}
	accepted, err := p.get(t.Context(), "/w", "check")
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []trust.ToolsFile{
		{Text: []byte(text), Untrusted: untrusted},
		{Text: []byte("- {name: check, argv: [rm]}")},
		{},
	} {
		file = &now
		_, err := accepted.Run(t.Context(), dray.Call{Tool: accepted}, dray.Discard)
		if dray.CodeOf(err) != dray.CodeWorkspaceUntrusted {
			t.Errorf("%+v: %v", now, err)
		}
	}
	file = &trust.ToolsFile{Workspace: "/w", Text: []byte(text)}
	if again, err := p.get(t.Context(), "/w", "check"); err != nil || again.Workspace != "/w" {
		t.Errorf("the tool with the same declaration: %v", err)
	}
}

// Why the tools of a project cannot be called is said once, in full, and not in each row (RT-15).
func TestProjectToolsReasonOnce(t *testing.T) {
	const reason = "the configuration of /w is not trusted: trust it with `dray workspace trust /w`"
	var page client.Tools
	for _, name := range []string{"check", "deploy"} {
		page.Items = append(page.Items, client.Tool{
			Name: name, State: "discovered", Reason: reason, Workspace: "/w",
		})
	}
	var out, stderr bytes.Buffer
	if err := (&app{out: &out, err: &stderr}).printTools(page); err != nil {
		t.Fatal(err)
	}
	if want := "dray: warning: " + reason + "\n"; stderr.String() != want {
		t.Errorf("stderr: %s, want %s", stderr.String(), want)
	}
	if strings.Contains(out.String(), "trust") || strings.Count(out.String(), "discovered") != 2 {
		t.Errorf("the table is\n%s", out.String())
	}
}
