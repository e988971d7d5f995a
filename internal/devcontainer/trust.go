package devcontainer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// TrustStore records which workspaces may be brought up. `up` runs initializeCommand on the host
// and mounts directories of the host, so the user must have agreed to it (RT-09). A trust covers
// the hash of the trust inputs and ends when one of them changes.
//
// It is safe for concurrent use, also by several processes.
type TrustStore struct {
	file          trustFile
	alwaysTrusted []string
	compose       Compose
}

// NewTrustStore returns a store with its file trust.json in the state directory. The folders in
// always are trusted with any configuration, but not the directories in them.
func NewTrustStore(state string, always []string, compose Compose) *TrustStore {
	s := &TrustStore{file: trustFile{path: filepath.Join(state, "trust.json")}, compose: compose}
	for _, folder := range always {
		s.alwaysTrusted = append(s.alwaysTrusted, realPath(filepath.Clean(folder)))
	}
	return s
}

// Summary returns what a trust in the workspace would cover.
func (s *TrustStore) Summary(ctx context.Context, loc Location) (Summary, error) {
	f, _, err := s.collect(ctx, loc)
	if err != nil {
		return Summary{}, err
	}
	return f.summary(), nil
}

// collect returns all trust inputs, and the hash of those that are known without running compose.
func (s *TrustStore) collect(ctx context.Context, loc Location) (*trustInputs, string, error) {
	f, err := collectTrustInputs(ctx, loc)
	if err != nil {
		return nil, "", err
	}
	inputsHash := f.hash()
	err = f.addModel(ctx, s.compose)
	return f, inputsHash, err
}

// Trust records a trust in what the returned summary shows.
func (s *TrustStore) Trust(ctx context.Context, loc Location) (Summary, error) {
	f, inputsHash, err := s.collect(ctx, loc)
	if err != nil {
		return Summary{}, err
	}
	summary := f.summary()
	record := trustRecord{
		Workspace: f.loc.Workspace, Config: f.loc.Config, Hash: summary.Hash, At: time.Now().UTC(),
	}
	if inputsHash != summary.Hash {
		record.InputsHash = inputsHash
	}
	return summary, s.file.put(record)
}

// Approve returns the approval to bring the workspace up with its present configuration. It fails
// with workspace_untrusted.
func (s *TrustStore) Approve(ctx context.Context, loc Location) (Approval, error) {
	if approval, ok, err := s.approveAlways(ctx, loc); ok || err != nil {
		return approval, err
	}
	f, record, err := s.unchanged(ctx, loc)
	if err != nil {
		return Approval{}, err
	}
	if err := f.addModel(ctx, s.compose); err != nil {
		return Approval{}, err
	}
	if record.Hash != f.hash() {
		return Approval{}, untrusted(loc, record)
	}
	approval, err := approve(loc, f.file, f.root, f.model)
	if err != nil {
		return Approval{}, err
	}
	approval.root = cmp.Or(f.realRoot, f.loc.Workspace)
	approval.reads, approval.hardLinked = f.reads()
	return approval, nil
}

// unchanged returns the trust inputs that are known without running compose, and the record of the
// trust in them. It fails with workspace_untrusted if they are not trusted.
func (s *TrustStore) unchanged(ctx context.Context, loc Location,
) (*trustInputs, trustRecord, error) {
	f, err := collectTrustInputs(ctx, loc)
	if err != nil {
		return nil, trustRecord{}, err
	}
	record, err := s.file.record(f.loc)
	if err == nil && record.inputsHash() != f.hash() {
		err = untrusted(loc, record)
	}
	return f, record, err
}

func untrusted(loc Location, record trustRecord) error {
	why := "has changed since it was trusted"
	if record.Hash == "" {
		why = "is not trusted"
	}
	return dray.Errorf(dray.CodeWorkspaceUntrusted,
		"the devcontainer configuration of %s %s", loc.Workspace, why).
		WithHint("review and trust it with: dray workspace trust %s", loc.Workspace)
}

func (s *TrustStore) approveAlways(ctx context.Context, loc Location) (Approval, bool, error) {
	canonical, err := loc.canonical(ctx)
	if err != nil {
		return Approval{}, false, err
	}
	if !slices.Contains(s.alwaysTrusted, canonical.Workspace) {
		return Approval{}, false, nil
	}
	file, err := readConfig(ctx, loc)
	if err != nil {
		return Approval{}, false, err
	}
	root := ""
	if !isCompose(file.values) {
		if root, err = mountRoot(ctx, loc.Workspace); err != nil {
			return Approval{}, false, err
		}
	}
	approval, err := approve(loc, file, root, composeModel{})
	return approval, err == nil, err
}

// Approval permits Up for one workspace with one configuration. The zero Approval permits nothing.
type Approval struct {
	loc    Location
	pinned entry // the configuration for `up`, see approve
	// root and reads are those of Root and Reads.
	root  string
	reads []string
	// hardLinked is one of reads with a further hard link, if there is one.
	hardLinked string
	// model is the compose project that was trusted, if it was not trusted by configuration.
	model composeModel
}

// Location returns the workspace that may be brought up.
func (a Approval) Location() Location { return a.loc }

// approve pins the configuration as it was read, with the mount and the workspace folder made
// explicit.
func approve(loc Location, file configFile, root string, model composeModel) (Approval, error) {
	values := maps.Clone(file.values)
	if !isCompose(values) {
		if strings.Contains(root, "${") {
			return Approval{}, broken(loc, "the path %s contains \"${\"", root)
		}
		if _, named := values["workspaceMount"]; !named {
			values["workspaceMount"] = mountFlag(root)
		}
		if values["workspaceFolder"] == nil {
			values["workspaceFolder"] = defaultFolder(root, loc.Workspace)
		}
	}
	return Approval{loc: loc, pinned: values, model: model}, nil
}

// write writes the pinned configuration to path, and the compose project to a directory below data
// with the name of the project: compose 1.x has the name from the directory.
func (a Approval) write(path, data string) error {
	values := maps.Clone(a.pinned)
	if a.model.text != "" {
		file := filepath.Join(data, a.model.project, "compose.yml")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(a.model.text), 0o600); err != nil {
			return err
		}
		values["dockerComposeFile"] = file
	}
	text, err := json.Marshal(values, json.Deterministic(true))
	if err != nil {
		return broken(a.loc, "%w", err)
	}
	return os.WriteFile(path, text, 0o600)
}

// mountFlag returns the mount of the workspace as the reference formats it.
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

// TrustFiles are the paths of the trust inputs. Stamp detects a change by times and sizes, without
// reading them.
type TrustFiles struct {
	dir     linux.UntrustedDir
	files   []string // absent ones included
	folders []string
}

// IsTrusted reports whether the files of the workspace are as they were when it was trusted, and
// the trust inputs, empty if it is always trusted. If it returns false, the error is the reason. It
// does not run compose, as Approve does: another version of compose can have another model of the
// same files.
func (s *TrustStore) IsTrusted(ctx context.Context, loc Location) (bool, TrustFiles, error) {
	if _, ok, err := s.approveAlways(ctx, loc); ok || err != nil {
		return err == nil, TrustFiles{}, err
	}
	f, _, err := s.unchanged(ctx, loc)
	if err != nil {
		return false, TrustFiles{}, err
	}
	return true, TrustFiles{
		dir:     linux.UntrustedDir(loc.Workspace),
		files:   slices.Sorted(maps.Keys(f.files)),
		folders: slices.Sorted(maps.Keys(f.folders)),
	}, nil
}

// Len returns the number of paths that Stamp examines.
func (b TrustFiles) Len() int { return len(b.files) + len(b.folders) }

// Stamp returns a text that differs after any of the files has changed, and the time of the latest
// change. It uses the files' change times, which programs cannot set. It fails if the files cannot
// be examined in time.
func (b TrustFiles) Stamp(ctx context.Context) (state string, latest time.Time, err error) {
	paths := slices.Concat(b.files, b.folders)
	if len(paths) == 0 {
		return "", time.Time{}, nil
	}
	stats, err := b.dir.StatAll(ctx, paths)
	text := make([]byte, 0, 64*len(stats))
	for i := range stats {
		st := &stats[i]
		text = append(append(text, paths[i]...), 0)
		if st.Mode == 0 {
			continue // it does not exist
		}
		text = strconv.AppendUint(text, uint64(st.Mode&syscall.S_IFMT), 36)
		if st.Mode&syscall.S_IFMT == syscall.S_IFDIR && i < len(b.files) {
			continue // only its type counts
		}
		//nolint:gosec // it only has to differ
		for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
			text = strconv.AppendInt(append(text, ' '), n, 36)
		}
		if at := time.Unix(0, st.Ctim.Nano()); at.After(latest) {
			latest = at
		}
	}
	return string(text), latest, err
}
