package trust

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/worktree"
	"github.com/dray-dev/dray/internal/lexical"
)

// Store records which workspaces may be brought up. `up` runs initializeCommand on the host
// and mounts directories of the host, so the user must have agreed to it (RT-09). A trust covers
// the hash of the trust inputs and ends when one of them changes.
//
// It is safe for concurrent use, also by several processes.
type Store struct {
	file          recordFile
	alwaysTrusted []string
	compose       compose.Options
}

// NewStore returns a store with its file trust.json in the state directory. The folders in
// always are trusted with any configuration, but not the directories in them.
func NewStore(state string, always []string, compose compose.Options) *Store {
	s := &Store{file: recordFile{path: filepath.Join(state, "trust.json")}, compose: compose}
	for _, folder := range always {
		folder = filepath.Clean(folder)
		if resolved, err := filepath.EvalSymlinks(folder); err == nil {
			folder = resolved
		}
		s.alwaysTrusted = append(s.alwaysTrusted, folder)
	}
	return s
}

// Review returns what a trust in the workspace would cover, whether that is trusted, and how it
// differs from what was trusted last.
func (s *Store) Review(ctx context.Context, loc devcontainer.Location) (Review, error) {
	in, _, err := s.collect(ctx, loc)
	if err != nil {
		return Review{}, err
	}
	last, err := s.file.record(in.loc)
	if err != nil {
		return Review{}, err
	}
	r := Review{
		Summary: in.summary(), Trusted: last.Hash == in.hash() || s.isAlways(in.loc),
		Inputs: in.list(), Changed: []string{},
	}
	if last.Hash != "" && last.Hash != r.Hash {
		r.Changed = difference(last.Facts, in.facts())
	}
	return r, nil
}

// collect returns all trust inputs, and the hash of those that are known without running compose.
func (s *Store) collect(ctx context.Context, loc devcontainer.Location) (*inputs, string, error) {
	in, err := collectWithTools(ctx, loc)
	if err != nil {
		return nil, "", err
	}
	inputsHash := in.hash()
	err = in.addProject(ctx, s.compose)
	return in, inputsHash, err
}

// Hash returns a hash of the files that decide what `up` makes, such as devcontainer.json,
// Dockerfiles and compose files, whether they are trusted or not.
func (s *Store) Hash(ctx context.Context, loc devcontainer.Location) (string, error) {
	in, err := collect(ctx, loc)
	if err != nil {
		return "", err
	}
	return in.hash(), nil
}

// Trust records a trust in what the returned summary shows. It fails with conflict unless hash is
// that of the summary: the caller has agreed to something else.
func (s *Store) Trust(ctx context.Context, loc devcontainer.Location, hash string,
) (Summary, error) {
	in, inputsHash, err := s.collect(ctx, loc)
	if err != nil {
		return Summary{}, err
	}
	summary := in.summary()
	if hash != summary.Hash {
		return Summary{}, dray.Errorf(dray.CodeConflict,
			"the hash of what is to be trusted in %s is %s, not %.80q", loc.Workspace, summary.Hash, hash).
			WithHint("it has changed since you looked at it: look again with "+
				"`dray workspace trust --show %s`", loc.Workspace)
	}
	record := record{
		Workspace: in.loc.Workspace, Config: in.loc.Config, Hash: summary.Hash, At: time.Now().UTC(),
		Facts: in.facts(),
	}
	if inputsHash != summary.Hash {
		record.InputsHash = inputsHash
	}
	return summary, s.file.put(record)
}

// Revoke ends the trust in a workspace, if there is one. It fails with conflict for a workspace
// that the configuration trusts.
func (s *Store) Revoke(ctx context.Context, loc devcontainer.Location) error {
	loc, err := loc.Canonical(ctx)
	if err != nil {
		return err
	}
	if s.isAlways(loc) {
		return dray.Errorf(dray.CodeConflict, "the configuration trusts %s", loc.Workspace).
			WithHint("remove it from trust.workspaces, and restart the daemon")
	}
	return s.file.remove(loc)
}

// Workspaces returns the folders for which a trust was given, also if they have changed since.
func (s *Store) Workspaces() ([]string, error) {
	doc, err := s.file.read()
	if err != nil {
		return nil, s.file.unusable(err)
	}
	var folders []string
	for _, r := range doc.Trusted {
		folders = append(folders, r.Workspace)
	}
	return folders, nil
}

// isAlways reports whether the configuration trusts a canonical location.
func (s *Store) isAlways(loc devcontainer.Location) bool {
	return slices.Contains(s.alwaysTrusted, loc.Workspace)
}

// Approve returns the approval to bring the workspace up with its present configuration. It fails
// with workspace_untrusted.
func (s *Store) Approve(ctx context.Context, loc devcontainer.Location) (Approval, error) {
	if approval, ok, err := s.approveAlways(ctx, loc); ok || err != nil {
		return approval, err
	}
	in, record, err := s.unchanged(ctx, loc)
	if err != nil {
		return Approval{}, err
	}
	if err := in.addProject(ctx, s.compose); err != nil {
		return Approval{}, err
	}
	if record.Hash != in.hash() {
		return Approval{}, untrusted(loc, record, in)
	}
	config, err := in.file.Pin(loc, in.root)
	if err != nil {
		return Approval{}, err
	}
	reads, hardLinked := in.reads()
	return Approval{
		loc: loc, config: config, project: in.project, root: cmp.Or(in.realRoot, in.loc.Workspace),
		reads: reads, hardLinked: hardLinked,
	}, nil
}

// unchanged returns the trust inputs that are known without running compose, and the record of the
// trust in them. It fails with workspace_untrusted if they are not trusted.
func (s *Store) unchanged(ctx context.Context, loc devcontainer.Location,
) (*inputs, record, error) {
	in, err := collectWithTools(ctx, loc)
	if err != nil {
		return nil, record{}, err
	}
	record, err := s.file.record(in.loc)
	if err == nil && record.inputsHash() != in.hash() {
		err = untrusted(loc, record, in)
	}
	return in, record, err
}

// untrusted returns the error workspace_untrusted. It has the first changes, except of a compose
// project: these are known only after compose was asked.
func untrusted(loc devcontainer.Location, last record, in *inputs) error {
	why := "is not trusted"
	if last.Hash != "" {
		why = "has changed since it was trusted"
		if in.compose == nil {
			changed := difference(last.Facts, in.facts())
			why += ": " + strings.Join(changed[:min(len(changed), maxChangesInError)], "; ")
		}
	}
	return dray.Errorf(dray.CodeWorkspaceUntrusted, "the devcontainer configuration of %s %s",
		loc.Workspace, lexical.EscapeControl(lexical.Truncate(why, maxUntrustedReason))).
		WithHint("look at it with `dray workspace trust --show %s`, and trust it with "+
			"`dray workspace trust %s`", lexical.ShellWord(loc.Workspace), lexical.ShellWord(loc.Workspace))
}

// Bounds of the message of workspace_untrusted: changes in it, and bytes of them.
const (
	maxChangesInError  = 5
	maxUntrustedReason = 1000
)

func (s *Store) approveAlways(ctx context.Context, loc devcontainer.Location,
) (Approval, bool, error) {
	canonical, err := loc.Canonical(ctx)
	if err != nil {
		return Approval{}, false, err
	}
	if !s.isAlways(canonical) {
		return Approval{}, false, nil
	}
	file, err := devcontainer.ReadConfig(ctx, loc)
	if err != nil {
		return Approval{}, false, err
	}
	root := ""
	if !file.IsCompose() {
		if root, err = worktree.Root(ctx, loc.Workspace); err != nil {
			return Approval{}, false, err
		}
	}
	config, err := file.Pin(loc, root)
	return Approval{loc: loc, config: config}, err == nil, err
}

// IsTrusted reports whether the files of the workspace are as they were when it was trusted, and
// the trust inputs, empty if it is always trusted. If it returns false, the error is the reason. It
// does not run compose, as Approve does: another version of compose can have another model of the
// same files.
func (s *Store) IsTrusted(ctx context.Context, loc devcontainer.Location) (bool, Files, error) {
	if _, ok, err := s.approveAlways(ctx, loc); ok || err != nil {
		return err == nil, Files{}, err
	}
	in, _, err := s.unchanged(ctx, loc)
	if err != nil {
		return false, Files{}, err
	}
	return true, in.paths(), nil
}

// paths returns the paths of all inputs.
func (in *inputs) paths() Files {
	return Files{
		dir:     in.dir,
		files:   append(slices.Sorted(maps.Keys(in.files)), in.tools.path),
		folders: slices.Sorted(maps.Keys(in.folders)),
	}
}
