package python

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python/assets"
)

//go:embed source/pyodide.js source/files.js
var runner embed.FS

const (
	runnerName      = "pyodide.js"
	snapshotName    = "snapshot.bin"
	snapshotSumName = "snapshot.sha256"
	workersName     = "workers"
	// maxSnapshot bounds a memory snapshot in bytes.
	maxSnapshot = 1 << 30
)

// snapshotFolder makes and verifies the folder that workers start from: the runner, the Python
// sources, the index of the packages and the memory snapshot. Its name is a digest of the assets
// and of the sources, so another release never uses it. It is verified as the assets are, before
// each start, and made anew if a file differs.
//
// The sources must be those of this program. The snapshot must have the checksum that was written
// beside it: that finds damage, not a change of both by the daemon's user.
type snapshotFolder struct {
	dir string

	mu       sync.Mutex
	name     string // of the folder that verified is of
	verified *assets.Folder
	swept    bool
}

// open returns the absolute path of the verified folder. If it has to be made, snapshot writes the
// snapshot into dir, which has the other files.
func (s *snapshotFolder) open(ctx context.Context, found assets.Assets,
	snapshot func(ctx context.Context, dir string) error,
) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, err := packageIndex(found.Lock)
	if err != nil {
		return "", err
	}
	name := filepath.Join(s.dir, snapshotID(found, index))
	if s.name == name && s.verified.Unchanged() {
		return name, nil
	}
	if err := s.sweep(filepath.Base(name)); err != nil {
		return "", fmt.Errorf("prepare the folder of Pyodide's memory snapshot: %w", err)
	}
	verified, err := verifySnapshot(ctx, name, index)
	if err != nil && ctx.Err() == nil {
		if err := s.make(ctx, name, index, snapshot); err != nil {
			return "", err
		}
		verified, err = verifySnapshot(ctx, name, index)
	}
	if err != nil {
		return "", unusableSnapshot(err)
	}
	s.name, s.verified = name, verified
	return name, nil
}

// unusableSnapshot returns the error for a folder that cannot be verified after it was made.
func unusableSnapshot(err error) error {
	failed := dray.Errorf(dray.CodeHelperMissing, "verify Pyodide's memory snapshot: %w", err)
	if p, ok := errors.AsType[*assets.Problem](err); ok && p.Fix != "" {
		return failed.WithHint("%s", p.Fix)
	}
	return failed.WithHint("no other program may change the state directory of the daemon")
}

// snapshotID is a digest of all that the content of the folder depends on.
func snapshotID(found assets.Assets, index []byte) string {
	h := sha256.New()
	_, _ = io.WriteString(h, found.ID)
	for _, name := range programSources {
		_, _ = fmt.Fprintf(h, "\x00%s\x00", name)
		_, _ = h.Write(programSource(name))
	}
	_, _ = h.Write(index)
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// programSources are the files in the folder that are part of this program.
var programSources = []string{
	runnerName, "files.js", "values.py", "core.py", "packages.py", "dray.py", "pyodide.py",
}

func programSource(name string) []byte {
	if filepath.Ext(name) != ".js" {
		return source(name)
	}
	text, err := runner.ReadFile("source/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}

// sweep removes, once per daemon, what earlier releases and an earlier daemon left.
func (s *snapshotFolder) sweep(keep string) error {
	if s.swept {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == keep {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	s.swept = true
	return os.Mkdir(s.workers(), 0o700)
}

// workers returns the directory for the directories of workers, which sweep makes.
func (s *snapshotFolder) workers() string { return filepath.Join(s.dir, workersName) }

// make makes the folder under a temporary name and renames it, so that a folder with the final name
// is complete.
func (s *snapshotFolder) make(ctx context.Context, final string, index []byte,
	snapshot func(ctx context.Context, dir string) error,
) error {
	dir, err := os.MkdirTemp(s.dir, "new-")
	if err != nil {
		return fmt.Errorf("make a folder for Pyodide's memory snapshot: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range programSources {
		if err := os.WriteFile(filepath.Join(dir, name), programSource(name), 0o600); err != nil {
			return fmt.Errorf("write the Pyodide runner: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, packagesName), index, 0o600); err != nil {
		return fmt.Errorf("write the index of the packages: %w", err)
	}
	if err := snapshot(ctx, dir); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(final), os.Rename(dir, final)); err != nil {
		return fmt.Errorf("name the folder of Pyodide's memory snapshot: %w", err)
	}
	return nil
}

// verifySnapshot verifies a folder.
func verifySnapshot(ctx context.Context, dir string, index []byte) (*assets.Folder, error) {
	sum, err := os.ReadFile(filepath.Join(dir, snapshotSumName))
	if err != nil {
		return nil, err
	}
	files := []assets.File{
		assets.FileOf(snapshotSumName, sum),
		{Name: snapshotName, SHA256: string(sum)},
		assets.FileOf(packagesName, index),
	}
	for _, name := range programSources {
		files = append(files, assets.FileOf(name, programSource(name)))
	}
	return assets.VerifyFolder(ctx, dir, files)
}

// makeSnapshot runs the runner in a folder and writes its stdout to a file: the memory of Python
// after its start, with the sources loaded.
func (p *Pyodide) makeSnapshot(ctx context.Context, found assets.Assets, dir string) error {
	work, err := p.newWorkDir(ctx, found, dir)
	if err != nil {
		return err
	}
	defer work.remove()
	spec, err := p.spec(work, runnerOptions{Mode: "make", Lockdown: true, Memory: pythonMemory(0)})
	if err != nil {
		return err
	}
	proc, err := p.cfg.Start(ctx, spec)
	if err != nil {
		return process.WrapStartError(err, spec.Dir)
	}
	defer context.AfterFunc(ctx, func() { proc.Stop(0) })()
	_ = proc.Stdin().Close()
	var stderr stderrHead
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&stderr, proc.Stderr()) })
	writeErr := writeSnapshot(dir, proc)
	exit, err := process.Adapt(proc).Wait()
	reading.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case exit.Code != 0 || exit.Signal != 0:
		return dray.Errorf(dray.CodeHelperMissing, "Deno cannot load Pyodide (%s): %q",
			describeExit(exit), strings.ToValidUTF8(stderr.String(), "?")).
			WithHint("run `dray doctor`; `dray python fetch` installs the Deno and Pyodide of this release")
	}
	return writeErr
}

// writeSnapshot writes the stdout of a process to the snapshot, and its checksum beside it. It
// reads stdout to its end in any case.
func writeSnapshot(dir string, proc *process.Process) error {
	h := sha256.New()
	f, err := os.OpenFile(filepath.Join(dir, snapshotName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(proc.Stdout(), maxSnapshot))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, snapshotSumName), hex.AppendEncode(nil, h.Sum(nil)), 0o600)
	}
	if err != nil {
		proc.Stop(0)
		_, _ = io.Copy(io.Discard, proc.Stdout())
		return fmt.Errorf("write the memory snapshot of Pyodide: %w", err)
	}
	if n, _ := io.Copy(io.Discard, proc.Stdout()); n > 0 {
		return fmt.Errorf("the memory snapshot of Pyodide is larger than %d bytes", maxSnapshot)
	}
	return nil
}
