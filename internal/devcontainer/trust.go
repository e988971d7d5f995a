package devcontainer

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
)

// TrustStore knows which workspaces may be brought up: `up` runs initializeCommand on the host and
// mounts folders of it, so somebody has to have agreed to exactly what it would do (RT-09). A trust
// is bound to the hash of all that and ends when any of it changes.
//
// It may be used from several goroutines and processes at once.
type TrustStore struct {
	file          trustFile
	alwaysTrusted []string
	git           GitFunc
}

// NewTrustStore keeps its file trust.json in the state folder. The folders of always are trusted
// whatever configuration stands there; each is meant alone, without the folders in it.
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
	record := trustRecord{
		Workspace: f.loc.Workspace, Config: f.loc.Config, Hash: summary.Hash,
		At: time.Now().UTC(),
	}
	if err := s.file.put(record); err != nil {
		return Summary{}, err
	}
	return summary, nil
}

// Approve gives leave to bring the workspace up with the configuration that stands there now, or
// fails with workspace_untrusted.
func (s *TrustStore) Approve(ctx context.Context, loc Location) (Approval, error) {
	approval, _, err := s.approve(ctx, loc)
	return approval, err
}

// approve gives the leave and what was looked at for it, which is nothing where the operator's own
// configuration gives it.
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
		return Approval{}, nil, dray.Errorf(dray.CodeWorkspaceUntrusted,
			"the devcontainer configuration of %s is not trusted", loc.Workspace).WithHint("%s", hint)
	case record.Hash != f.hash():
		return Approval{}, nil, dray.Errorf(dray.CodeWorkspaceUntrusted,
			"the devcontainer configuration of %s has changed since it was trusted", loc.Workspace).WithHint("%s", hint)
	}
	approval, err := approve(loc, f.file, f.root)
	return approval, f, err
}

// approveAlways gives leave where the operator's own configuration does; then nothing has to be
// surveyed.
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

// Approval is the leave to bring one workspace up with one configuration. Only a TrustStore gives
// one; the zero Approval gives no leave.
type Approval struct {
	loc    Location
	pinned []byte
}

// Location is the workspace that may be brought up.
func (a Approval) Location() Location { return a.loc }

// approve pins what was agreed to: the configuration as it was read, and the mount that it leaves
// to be found out.
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

// TrustFiles is what a trust is bound to, by name, so that it can be looked at often without being
// read: a call that takes a trust for granted asks for nothing but the times and sizes of its
// files.
type TrustFiles struct {
	files   []string // and what may become one
	folders []string // whose entries count
}

// IsTrusted says whether the workspace may be brought up as it stands, and what that answer rests
// on; nothing, where the operator's configuration gives it. Beside false the error says why not.
func (s *TrustStore) IsTrusted(ctx context.Context, loc Location) (bool, TrustFiles, error) {
	_, f, err := s.approve(ctx, loc)
	if err != nil || f == nil {
		return err == nil, TrustFiles{}, err
	}
	return true, TrustFiles{
		files:   slices.Sorted(maps.Keys(f.files)),
		folders: slices.Sorted(maps.Keys(f.folders)),
	}, nil
}

// Len is the number of files and folders that State looks at.
func (b TrustFiles) Len() int { return len(b.files) + len(b.folders) }

// Stamp is a text that is another one after any of the files changed, and the time of the latest
// change. The change times that it is made of are the kernel's own, which nobody can set back.
func (b TrustFiles) Stamp() (state string, latest time.Time) {
	text := make([]byte, 0, 64*b.Len())
	look := func(path string, entries bool) {
		var st syscall.Stat_t
		text = append(append(text, path...), 0)
		if syscall.Stat(path, &st) != nil {
			return
		}
		text = strconv.AppendUint(text, uint64(st.Mode&syscall.S_IFMT), 36)
		if st.Mode&syscall.S_IFMT == syscall.S_IFDIR && !entries {
			return // only that it is no file
		}
		// it only has to differ
		for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} { //nolint:gosec
			text = strconv.AppendInt(append(text, ' '), n, 36)
		}
		if at := time.Unix(0, st.Ctim.Nano()); at.After(latest) {
			latest = at
		}
	}
	for _, path := range b.files {
		look(path, false)
	}
	for _, path := range b.folders {
		look(path, true)
	}
	return string(text), latest
}
