package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// Commits records in which directories commits with expectations run, so that the next start can
// complete those that a killed daemon has left. The records are files in one directory, each with
// an absolute path. A commit that is not recorded is completed by the next one in its directory.
type Commits struct{ dir string }

// NewCommits returns the records in a directory, which is created when the first one is written.
func NewCommits(dir string) Commits { return Commits{dir} }

// Files returns files whose commits with expectations are recorded. Closing them closes local.
func (c Commits) Files(local *Local) RecordedFiles { return RecordedFiles{local, c} }

// Recover completes the recorded commits, or removes what they left. It returns how many it
// completed, and the errors of those that it could not, which stay recorded. It must not be called
// while commits run.
func (c Commits) Recover(ctx context.Context) (completed int, err error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the recorded commits: %w", err)
	}
	for _, e := range entries {
		n, failed := c.recover(ctx, filepath.Join(c.dir, e.Name()))
		completed, err = completed+n, errors.Join(err, failed)
	}
	return completed, err
}

func (c Commits) recover(ctx context.Context, record string) (completed int, err error) {
	path, err := os.ReadFile(record)
	if err != nil {
		return 0, fmt.Errorf("read a recorded commit: %w", err)
	}
	if !filepath.IsAbs(string(path)) { // the daemon was killed before it had written it
		return 0, os.Remove(record)
	}
	local, err := Open(string(path))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, os.Remove(record)
	}
	if err != nil {
		return 0, fmt.Errorf("recover a commit in %s: %w", path, err)
	}
	defer func() { _ = local.Close() }()
	completed, err = local.Recover(ctx, dray.WriteTreeOptions{RefuseRepositories: true})
	if err != nil {
		return completed, fmt.Errorf("recover a commit in %s: %w", path, err)
	}
	return completed, os.Remove(record)
}

// add records a directory, on the disk too, and returns the record.
func (c Commits) add(path string) (record string, err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(c.dir, "")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(path)
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(c.dir)); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// RecordedFiles are files whose commits with expectations are recorded. They implement dray.Files.
type RecordedFiles struct {
	*Local
	commits Commits
}

// WriteTree records a commit with expectations before it is decided.
func (f RecordedFiles) WriteTree(ctx context.Context, tree dray.Tree, how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	if how.Expect == nil {
		return f.Local.WriteTree(ctx, tree, how)
	}
	var record string
	before := how.BeforeCommit
	how.BeforeCommit = func(files []dray.WrittenFile) error {
		if before != nil {
			if err := before(files); err != nil {
				return err
			}
		}
		path, err := f.RealPath()
		if err == nil {
			record, err = f.commits.add(path)
		}
		if err != nil {
			return fmt.Errorf("record the commit: %w", classify(err))
		}
		return nil
	}
	written, err := f.Local.WriteTree(ctx, tree, how)
	if record != "" && !errors.Is(err, stage.ErrCommitIncomplete) {
		_ = os.Remove(record) // one that stays is recovered in vain
	}
	return written, err
}
