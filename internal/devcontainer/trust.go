package devcontainer

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
)

// TrustStore knows which workspaces may be brought up: `up` runs initializeCommand on the host and mounts folders of it, so somebody has
// to have agreed to exactly what it would do (RT-09). A trust is bound to the hash of all that and ends when any of it changes.
//
// It may be used from several goroutines and processes at once.
type TrustStore struct {
	file          trustFile
	alwaysTrusted []string
	git           GitFunc
}

// NewTrustStore keeps its file trust.json in the state folder. The folders of always are trusted whatever configuration stands there;
// each is meant alone, without the folders in it.
func NewTrustStore(state string, always []string, git GitFunc) *TrustStore {
	s := &TrustStore{file: trustFile{path: filepath.Join(state, "trust.json")}, git: git}
	for _, folder := range always {
		s.alwaysTrusted = append(s.alwaysTrusted, realPath(filepath.Clean(folder)))
	}
	return s
}

// Summary says what a trust in the workspace would be about. It changes nothing.
func (s *TrustStore) Summary(ctx context.Context, loc Location) (Summary, error) {
	f, err := collectTrustInputs(ctx, loc, s.git)
	if err != nil {
		return Summary{}, err
	}
	return f.summary(), nil
}

// Trust records that what the returned summary shows is agreed to.
func (s *TrustStore) Trust(ctx context.Context, loc Location) (Summary, error) {
	f, err := collectTrustInputs(ctx, loc, s.git)
	if err != nil {
		return Summary{}, err
	}
	summary := f.summary()
	record := trustRecord{Workspace: f.loc.Workspace, Config: f.loc.Config, Hash: summary.Hash, At: time.Now().UTC()}
	if err := s.file.put(record); err != nil {
		return Summary{}, err
	}
	return summary, nil
}

// Approve gives leave to bring the workspace up with the configuration that stands there now, or fails with workspace_untrusted.
func (s *TrustStore) Approve(ctx context.Context, loc Location) (Approval, error) {
	approval, _, err := s.approve(ctx, loc)
	return approval, err
}

// approve gives the leave and what was looked at for it, which is nothing where the operator's own configuration gives it.
func (s *TrustStore) approve(ctx context.Context, loc Location) (Approval, *trustInputs, error) {
	if approval, ok, err := s.approveAlways(ctx, loc); ok || err != nil {
		return approval, nil, err
	}
	f, err := collectTrustInputs(ctx, loc, s.git)
	if err != nil {
		return Approval{}, nil, err
	}
	record, found, err := s.file.get(f.loc)
	if err != nil {
		return Approval{}, nil, err
	}
	hint := "look at it and agree to it with: dray workspace trust " + loc.Workspace
	switch {
	case !found:
		return Approval{}, nil, dray.Errorf(dray.CodeWorkspaceUntrusted, "the devcontainer configuration of %s is not trusted", loc.Workspace).WithHint("%s", hint)
	case record.Hash != f.hash():
		return Approval{}, nil, dray.Errorf(dray.CodeWorkspaceUntrusted, "the devcontainer configuration of %s has changed since it was trusted", loc.Workspace).WithHint("%s", hint)
	}
	approval, err := approve(loc, f.file, f.root)
	return approval, f, err
}

// approveAlways gives leave where the operator's own configuration does; then nothing has to be surveyed.
func (s *TrustStore) approveAlways(ctx context.Context, loc Location) (Approval, bool, error) {
	canonical, err := loc.canonical()
	if err != nil {
		return Approval{}, false, err
	}
	if !slices.Contains(s.alwaysTrusted, canonical.Workspace) {
		return Approval{}, false, nil
	}
	file, err := readConfig(loc)
	if err != nil {
		return Approval{}, false, err
	}
	root := ""
	if !isCompose(file.values) {
		root = mountRoot(ctx, s.git, loc.Workspace)
	}
	approval, err := approve(loc, file, root)
	return approval, err == nil, err
}

// Approval is the leave to bring one workspace up with one configuration. Only a TrustStore gives one; the zero Approval gives no
// leave.
type Approval struct {
	loc    Location
	pinned []byte
}

// Location is the workspace that may be brought up.
func (a Approval) Location() Location { return a.loc }

// approve pins what was agreed to: the configuration as it was read, and the mount that it leaves to be found out.
func approve(loc Location, file configFile, root string) (Approval, error) {
	values := maps.Clone(file.values)
	if !isCompose(values) {
		if strings.Contains(root, "${") {
			return Approval{}, broken(loc, "the folder %s reads like a variable", root)
		}
		if _, named := values["workspaceMount"]; !named {
			values["workspaceMount"] = mountFlag(root)
		}
		if values["workspaceFolder"] == nil {
			values["workspaceFolder"] = defaultFolder(root, loc.Workspace)
		}
	}
	pinned, err := json.Marshal(values, json.Deterministic(true))
	if err != nil {
		return Approval{}, broken(loc, "%w", err)
	}
	return Approval{loc: loc, pinned: pinned}, nil
}

// mountFlag is the mount of the workspace as the reference writes it.
func mountFlag(root string) string {
	field := func(name, value string) string {
		text := name + "=" + value
		if strings.Contains(value, ",") {
			text = `"` + text + `"`
		}
		return text
	}
	text := fmt.Sprintf("type=bind,%s,%s", field("source", root), field("target", mountTarget(root)))
	if runtime.GOOS != "linux" {
		text += ",consistency=cached"
	}
	return text
}
