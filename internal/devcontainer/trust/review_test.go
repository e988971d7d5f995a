package trust

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

// Trust is given for what was looked at, the difference to it is shown, and it can be revoked
// (RT-16).
func TestTrust_ForHashOfReview(t *testing.T) {
	const before = `{"image": "x", "initializeCommand": "sh init.sh", "runArgs": ["--net=host"]}`
	loc := devtest.Workspace(t, before)
	devtest.Write(t, loc.Workspace, "init.sh", "true")
	s := trustStore(t)
	first, err := s.Review(t.Context(), loc)
	devtest.Must(t, err)
	if first.Trusted || len(first.Changed) != 0 {
		t.Errorf("nothing was trusted: %+v", first)
	}
	devtest.Write(t, loc.Workspace, "init.sh", "evil")
	for _, hash := range []string{"", "sha256:", first.Hash, first.Hash + "x"} {
		_, err := s.Trust(t.Context(), loc, hash)
		if dray.CodeOf(err) != dray.CodeConflict || dray.AsError(err).Hint == "" {
			t.Errorf("the hash %q: %v", hash, err)
		}
	}
	wantUntrusted(t, s, loc, "is not trusted")
	devtest.Write(t, loc.Workspace, "init.sh", "true")
	if _, err := s.Trust(t.Context(), loc, first.Hash); err != nil {
		t.Fatal(err)
	}
	wantTrusted(t, s, loc)

	devtest.Write(t, loc.Workspace, "init.sh", "evil")
	devtest.Write(t, loc.Workspace, ".devcontainer/devcontainer.json", `{"image": "x",
		"initializeCommand": "sh init.sh \u001b[2J", "mounts": ["source=/,target=/h,type=bind"],
		"containerEnv": {"T": "${localEnv:TOKEN}"}}`)
	devtest.Write(t, loc.Workspace, ".devcontainer/Dockerfile", "")
	wantUntrusted(t, s, loc, `added: initializeCommand sh init.sh \u001b[2J`)
	second, err := s.Review(t.Context(), loc)
	devtest.Must(t, err)
	if want := []string{
		"added: " + loc.Workspace + "/.devcontainer/Dockerfile",
		"added: initializeCommand sh init.sh \x1b[2J", "added: mounts source=/,target=/h,type=bind",
		"added: variable of the host TOKEN", "removed: initializeCommand sh init.sh",
		"removed: runArgs --net=host",
		"changed: " + loc.Config, "changed: " + loc.Workspace + "/init.sh",
	}; second.Trusted || !slices.Equal(second.Changed, want) {
		t.Errorf("got %q\nwant %q", second.Changed, want)
	}
	var text strings.Builder
	devtest.Must(t, second.Write(&text))
	if !strings.Contains(text.String(), `since it was trusted   added: mounts source=/`) ||
		strings.Contains(text.String(), "\x1b") {
		t.Errorf("printed %s", text.String())
	}
	i := slices.IndexFunc(second.Inputs, func(i Input) bool { return i.Path == loc.Config })
	if i < 0 || len(second.Inputs[i].SHA256) != 64 ||
		!slices.Contains(second.Inputs[i].Acts, "mounts source=/,target=/h,type=bind") {
		t.Errorf("inputs %+v", second.Inputs)
	}

	devtest.Write(t, loc.Workspace, "init.sh", "true")
	devtest.Write(t, loc.Workspace, ".devcontainer/devcontainer.json", before)
	devtest.Must(t, os.Remove(filepath.Join(loc.Workspace, ".devcontainer", "Dockerfile")))
	wantTrusted(t, s, loc)
	devtest.Must(t, s.Revoke(t.Context(), loc), s.Revoke(t.Context(), loc))
	wantUntrusted(t, s, loc, "is not trusted")
	always := trustStore(t, loc.Workspace)
	if err := always.Revoke(t.Context(), loc); dray.CodeOf(err) != dray.CodeConflict {
		t.Errorf("a workspace of the configuration is revoked: %v", err)
	}
}

// What a compose project asks for is in the difference (RT-16).
func TestTrust_ComposeDifference(t *testing.T) {
	eachCompose(t, false, func(t *testing.T, dockerConfig string) {
		loc := composeProject(t, map[string]string{
			"c.yml": "version: '3'\nservices: {app: {image: x}}\n",
		})
		s := composeStore(t, dockerConfig)
		mustTrust(t, s, loc)
		file := devtest.Write(t, loc.Workspace, ".devcontainer/c.yml",
			"version: '3'\nservices: {app: {image: x, privileged: true}}\n")
		review, err := s.Review(t.Context(), loc)
		devtest.Must(t, err)
		if want := []string{
			"added: service app: privileged true", "changed: " + file, "changed: compose project",
		}; !slices.Equal(review.Changed, want) {
			t.Errorf("got %q", review.Changed)
		}
	})
}

// A trust of an earlier version, which stored no facts, is still valid (RT-16).
func TestTrust_WithoutFacts(t *testing.T) {
	loc, s := devtest.Workspace(t, `{"image": "x"}`), trustStore(t)
	mustTrust(t, s, loc)
	last, err := s.file.record(loc)
	devtest.Must(t, err)
	last.Facts = nil
	devtest.Must(t, s.file.put(last))
	wantTrusted(t, s, loc)
	devtest.Write(t, loc.Workspace, ".devcontainer/devcontainer.json", `{"image": "y"}`)
	review, err := s.Review(t.Context(), loc)
	if err != nil || len(review.Changed) != 1 || !strings.HasPrefix(review.Changed[0], "not known") {
		t.Errorf("got %q, %v", review.Changed, err)
	}
}
