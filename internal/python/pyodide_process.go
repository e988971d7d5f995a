package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python/assets"
)

const (
	// v8Stack is the stack of V8 in KiB. It is large because nested objects of Python recurse in
	// WebAssembly. mainStack is the stack of the main thread in bytes, which must hold it.
	v8Stack   = 40 << 10
	mainStack = 64 << 20
)

// The names in the working directory of Deno, under which it has all that it may read. Deno splits
// the value of --allow-read at commas and has no way to escape one, so no path of a user is part of
// the command line.
const (
	programName    = "program"    // the runner, the Python sources and the memory snapshot
	pyodideName    = "pyodide"    // Pyodide and the wheels
	interruptsName = "interrupts" // the file with interrupts
)

// workDir is the working directory of one Deno process, and what it shows.
type workDir struct {
	dir         string
	found       assets.Assets
	program     string // the folder with the runner
	confinement Confinement
	// interrupts is the file that the worker polls for interrupts while code uses its only thread.
	interrupts *os.File
}

// newWorkDir makes a working directory: symlinks to the assets and to the folder of the program,
// and an empty file of interrupts. In bubblewrap Deno has mounts of the same names instead.
func (p *Pyodide) newWorkDir(ctx context.Context, found assets.Assets, program string,
) (*workDir, error) {
	confinement, err := p.confinement.get(ctx, &p.cfg, found)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.snapshot.workers(), "")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a worker: %w", err)
	}
	w := &workDir{dir: dir, found: found, program: program, confinement: confinement}
	w.interrupts, err = os.OpenFile(filepath.Join(dir, interruptsName),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	err = errors.Join(err, os.Symlink(found.Dir, filepath.Join(dir, pyodideName)),
		os.Symlink(program, filepath.Join(dir, programName)))
	if err != nil {
		w.remove()
		return nil, fmt.Errorf("make the directory of a worker: %w", err)
	}
	return w, nil
}

// remove removes the directory. The next daemon removes what cannot be removed.
func (w *workDir) remove() {
	if w.interrupts != nil {
		_ = w.interrupts.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// runnerOptions are those of source/pyodide.js. Paths are relative to the working directory.
type runnerOptions struct {
	Mode       string   `json:"mode"`
	Pyodide    string   `json:"pyodide"`
	Folder     string   `json:"folder"`
	Interrupts string   `json:"interrupts"`
	Snapshot   bool     `json:"snapshot"`
	Generation uint32   `json:"generation"`
	Memory     int64    `json:"memory"`
	Lockdown   bool     `json:"lockdown"`
	Preload    []string `json:"preload"`
}

// spec returns the process that runs the runner.
func (p *Pyodide) spec(work *workDir, opts runnerOptions) (process.Spec, error) {
	opts.Pyodide, opts.Folder, opts.Interrupts = pyodideName, programName, interruptsName
	text, err := json.Marshal(opts)
	if err != nil {
		return process.Spec{}, err
	}
	flags := "--v8-flags=--expose-gc,--stack-size=" + strconv.Itoa(v8Stack)
	if opts.Lockdown {
		flags += ",--disallow-code-generation-from-strings"
	}
	return process.Spec{
		Argv: append(work.deno(), "run", "--quiet", "--no-prompt", "--deny-net", "--deny-run",
			"--deny-write", "--deny-env", "--deny-ffi", "--deny-sys", "--deny-import", "--no-remote",
			"--no-npm", "--cached-only", "--no-config", "--no-lock",
			"--allow-read="+strings.Join([]string{pyodideName, programName, interruptsName}, ","),
			flags, programName+"/"+runnerName, string(text)),
		Env: denoEnv(), Dir: work.dir,
		Data: denoData + uint64(max(0, opts.Memory)), Stack: mainStack,
	}, nil
}

// deno returns the beginning of the command line: Deno, or Deno in bubblewrap.
func (w *workDir) deno() []string {
	if w.confinement.Bwrap == "" {
		return []string{w.found.Deno}
	}
	return append(w.confinement.argv(w.found.Deno, w.found.Dir, pyodideName, w.program, programName,
		w.interrupts.Name(), interruptsName), bwrapDeno)
}

// denoEnv returns the variables of Deno. DENO_DIR is a path that cannot exist, so that nothing that
// code stores in a cache or in localStorage outlives the process. The variables of glibc's malloc
// make it return what V8's compiler threads have freed: an idle worker has 137 MB of resident
// memory with them, and 187 MB without.
func denoEnv() []string {
	return []string{
		"DENO_DIR=/dev/null/none", "DENO_NO_UPDATE_CHECK=1", "MALLOC_ARENA_MAX=1",
		"MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_TOP_PAD_=65536",
	}
}
