package python

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python/assets"
)

//go:embed source/pyodide.js
var runner embed.FS

const (
	runnerName   = "pyodide.js"
	snapshotName = "snapshot.bin"
	sumsName     = "sha256.json"
	workersName  = "workers"
	// maxSnapshot bounds a memory snapshot in bytes.
	maxSnapshot = 1 << 30
)

// preparation makes the folder that workers load: the runner, the Python sources and the memory
// snapshot. The name of the folder is a digest of the assets and of the sources, so another release
// never loads it. It is made once. It is verified by the first start in a daemon, and again when
// one of its files has changed; a folder that differs is made anew.
type preparation struct {
	dir string

	mu       sync.Mutex
	ready    string // the folder, if it was verified
	verified []fs.FileInfo
	swept    bool
}

// folder returns the prepared folder. If it has to be made, snapshot writes the snapshot into dir,
// which has the other files.
func (p *preparation) folder(ctx context.Context, found assets.Assets,
	snapshot func(ctx context.Context, dir string) error,
) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	final := filepath.Join(p.dir, preparationID(found))
	if p.ready == final && unchanged(final, p.verified) {
		return final, nil
	}
	p.ready = ""
	if err := p.sweep(filepath.Base(final)); err != nil {
		return "", fmt.Errorf("prepare Pyodide: %w", err)
	}
	infos, err := verifyFolder(final)
	if err != nil {
		infos, err = p.make(ctx, final, snapshot)
	}
	if err != nil {
		return "", err
	}
	p.ready, p.verified = final, infos
	return final, nil
}

// preparationID is a digest of all that the content of the folder depends on.
func preparationID(found assets.Assets) string {
	h := sha256.New()
	_, _ = io.WriteString(h, found.ID)
	for _, name := range append([]string{runnerName}, pythonSources...) {
		_, _ = fmt.Fprintf(h, "\x00%s\x00", name)
		_, _ = h.Write(preparedSource(name))
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

var pythonSources = []string{"values.py", "core.py", "pyodide.py"}

func preparedSource(name string) []byte {
	if name != runnerName {
		return source(name)
	}
	text, err := runner.ReadFile("source/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}

// sweep removes, once per daemon, what earlier releases and an earlier daemon left.
func (p *preparation) sweep(keep string) error {
	if p.swept {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == keep {
			continue
		}
		if err := os.RemoveAll(filepath.Join(p.dir, e.Name())); err != nil {
			return err
		}
	}
	p.swept = true
	return os.Mkdir(p.workers(), 0o700)
}

// workers returns the directory for the files of workers, which sweep makes.
func (p *preparation) workers() string { return filepath.Join(p.dir, workersName) }

// make makes a folder under a temporary name and renames it, so that a folder named final is
// complete.
func (p *preparation) make(ctx context.Context, final string,
	snapshot func(ctx context.Context, dir string) error,
) ([]fs.FileInfo, error) {
	dir, err := os.MkdirTemp(p.dir, "new-")
	if err != nil {
		return nil, fmt.Errorf("prepare Pyodide: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range append([]string{runnerName}, pythonSources...) {
		if err := os.WriteFile(filepath.Join(dir, name), preparedSource(name), 0o600); err != nil {
			return nil, fmt.Errorf("prepare Pyodide: %w", err)
		}
	}
	if err := snapshot(ctx, dir); err != nil {
		return nil, err
	}
	if err := writeSums(dir); err != nil {
		return nil, fmt.Errorf("prepare Pyodide: %w", err)
	}
	if err := os.RemoveAll(final); err != nil {
		return nil, fmt.Errorf("prepare Pyodide: %w", err)
	}
	if err := os.Rename(dir, final); err != nil {
		return nil, fmt.Errorf("prepare Pyodide: %w", err)
	}
	return verifyFolder(final)
}

// preparedFiles are the files with a checksum.
func preparedFiles() []string {
	return append([]string{runnerName, snapshotName}, pythonSources...)
}

func writeSums(dir string) error {
	sums := map[string]string{}
	for _, name := range preparedFiles() {
		sum, err := hashFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		sums[name] = sum
	}
	text, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsName), text, 0o600)
}

func hashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// verifyFolder compares the sources in a folder with what is embedded, and the snapshot with the
// checksum that was written beside it: that finds damage, not a change of both by the daemon's
// user. It returns what unchanged compares.
func verifyFolder(dir string) ([]fs.FileInfo, error) {
	text, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return nil, err
	}
	var sums map[string]string
	if err := json.Unmarshal(text, &sums); err != nil {
		return nil, err
	}
	infos, err := statPrepared(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range preparedFiles() {
		expected := sums[name]
		if name != snapshotName {
			sum := sha256.Sum256(preparedSource(name))
			expected = hex.EncodeToString(sum[:])
		}
		if sum, err := hashFile(filepath.Join(dir, name)); err != nil || sum != expected {
			return nil, errors.Join(err, fmt.Errorf("%s has another checksum", name))
		}
	}
	return infos, nil
}

func statPrepared(dir string) ([]fs.FileInfo, error) {
	var infos []fs.FileInfo
	for _, name := range preparedFiles() {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// unchanged reports whether the files have the inodes, sizes, modes and times that were verified.
func unchanged(dir string, verified []fs.FileInfo) bool {
	infos, err := statPrepared(dir)
	if err != nil {
		return false
	}
	for i, was := range verified {
		now := infos[i]
		if !os.SameFile(was, now) || was.Size() != now.Size() || was.Mode() != now.Mode() ||
			!was.ModTime().Equal(now.ModTime()) {
			return false
		}
	}
	return true
}

// makeSnapshot runs the runner in a folder and writes its stdout to a file: the memory of Python
// after its start, with the sources loaded.
func (p *Pyodide) makeSnapshot(ctx context.Context, found assets.Assets, dir string) error {
	spec, err := p.spec(found, runnerOptions{
		Mode: "make", Pyodide: filepath.Clean(found.Dir), Folder: dir, Lockdown: true,
		Memory: pythonMemory(0),
	})
	if err != nil {
		return err
	}
	proc, err := p.cfg.Start(ctx, spec)
	if err != nil {
		return process.WrapStartError(err, spec.Dir)
	}
	defer context.AfterFunc(ctx, func() { proc.Stop(0) })()
	_ = proc.Stdin().Close()
	var stderr stderrTail
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&stderr, proc.Stderr()) })
	writeErr := writeFile(filepath.Join(dir, snapshotName), proc)
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

// writeFile writes the stdout of a process to a file. It reads stdout to its end in any case.
func writeFile(name string, proc *process.Process) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(f, io.LimitReader(proc.Stdout(), maxSnapshot))
		err = errors.Join(err, f.Sync(), f.Close())
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
