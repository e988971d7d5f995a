package python

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/python/pep508"
)

const (
	// maxHelperLine bounds one line of the helper: a result lists the installed packages.
	maxHelperLine = 4 << 20
	// maxHelperOutput bounds all lines of the helper.
	maxHelperOutput = 8 << 20
	// maxHelperMessage bounds what an error repeats of the helper's messages.
	maxHelperMessage = 4 << 10
	// helperGrace is the time that the helper has to remove an unfinished environment.
	helperGrace = 3 * time.Second
)

// interpreter is a Python in the environment of a session.
type interpreter struct {
	Executable string `json:"executable"`
	Version    string `json:"version"`
	Prefix     string `json:"prefix"`
	// Installed has the versions of packages by normalized name.
	Installed map[string]string `json:"installed"`
}

// builder makes virtual environments and describes interpreters, in the environment of a session
// and nowhere else (PY-15). What it starts there is source/prepare.py and uv.
type builder struct {
	env    dray.Environment
	policy PreparePolicy
	sink   dray.Sink
}

// find returns the interpreter of a virtual environment that was made for the manifest, or nil if
// there is none.
func (b builder) find(ctx context.Context, m Manifest) (*interpreter, error) {
	found, err := b.run(ctx, "python3", "find", b.request(m))
	if err != nil || found.Executable == "" {
		return nil, err
	}
	return &found, nil
}

// build makes a virtual environment for the manifest unless there is one, and returns its
// interpreter. If it fails, or ctx ends, nothing is left.
func (b builder) build(ctx context.Context, m Manifest) (interpreter, error) {
	b.sink.Progress("prepare", "packages: "+cmp.Or(strings.Join(m.Names(), ", "), "none"))
	return b.run(ctx, "python3", "build", b.request(m))
}

func (b builder) request(m Manifest) map[string]any {
	return map[string]any{
		"key": m.key(b.policy), "packages": m.Names(), "python_version": m.PythonVersion,
		"source_builds": b.policy.SourceBuilds, "index": b.policy.Index,
	}
}

// probe describes an interpreter without running anything of its packages. Its name is absolute;
// empty is python3 of the PATH.
func (b builder) probe(ctx context.Context, executable string) (interpreter, error) {
	return b.run(ctx, cmp.Or(executable, "python3"), "probe", map[string]any{
		"executable": executable,
	})
}

// helperLine is one line of the output of source/prepare.py. It is untrusted, as the environment
// is.
type helperLine struct {
	Progress string       `json:"progress"`
	Result   *interpreter `json:"result"`
	Error    *struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	} `json:"error"`
}

// run runs source/prepare.py to its end.
func (b builder) run(ctx context.Context, executable, mode string, request any) (
	interpreter, error,
) {
	input, err := json.Marshal(request)
	if err != nil {
		return interpreter{}, err
	}
	proc, err := b.env.Start(ctx, dray.ProcessSpec{
		Argv: []string{executable, "-I", "-S", "-c", string(source("prepare.py")), mode},
		Dir:  "/", Grace: helperGrace,
	})
	if err != nil {
		return interpreter{}, explainStart(err, executable)
	}
	h := helper{proc: proc, progress: b.progress}
	found, err := h.talk(ctx, append(input, '\n'))
	switch {
	case ctx.Err() != nil:
		return interpreter{}, context.Cause(ctx)
	case err != nil || found.Executable == "" && mode == "find":
		return interpreter{}, err
	}
	return found, found.check(executable)
}

// explainStart adds a hint to the error of an interpreter that does not start.
func explainStart(err error, executable string) error {
	code := dray.CodeOf(err)
	switch {
	case executable == "python3":
		return startError(err, executable)
	case code == dray.CodeExecutableNotFound || code == dray.CodeNotExecutable:
		return dray.AsError(err).WithHint("name an interpreter that is in the environment of the session")
	default:
		return err
	}
}

// progress reports one line of uv.
func (b builder) progress(line string) {
	phase := "uv"
	switch first, _, _ := strings.Cut(strings.TrimSpace(line), " "); first {
	case "Using", "Creating":
		phase = "create"
	case "Resolved", "Resolving":
		phase = "resolve"
	case "Downloading", "Downloaded", "Prepared", "Building", "Built":
		phase = "download"
	case "Installed":
		phase = "install"
	case "Activate", "+": // a hint for people at a shell; a package, which the reply lists
		return
	}
	b.sink.Progress(phase, plain(line, 200))
}

// plain returns a text of the environment without control characters and with a maximum length.
func plain(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return lexical.Truncate(strings.TrimSpace(text), limit)
}

// helper is a running source/prepare.py.
type helper struct {
	proc     dray.Process
	progress func(line string)
	stderr   string
}

// talk sends the request, reads the lines, and blocks until the process has ended.
func (h *helper) talk(ctx context.Context, input []byte) (interpreter, error) {
	stop := context.AfterFunc(ctx, func() { h.proc.Stop(helperGrace) })
	defer stop()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = h.proc.Stdin().Write(input) // it fails if the process has ended, which its exit says
		_ = h.proc.Stdin().Close()
	})
	group.Go(func() {
		text, _ := io.ReadAll(io.LimitReader(h.proc.Output(dray.Stderr), maxHelperMessage))
		h.stderr = string(text)
		_, _ = io.Copy(io.Discard, h.proc.Output(dray.Stderr))
	})
	last, err := h.read()
	if err != nil {
		h.proc.Stop(0)
	}
	_, _ = io.Copy(io.Discard, h.proc.Output(dray.Stdout))
	exit, waitErr := h.proc.Wait()
	group.Wait()
	if waitErr != nil {
		return interpreter{}, waitErr
	}
	return h.outcome(last, exit, err)
}

// read reads lines until the end of the output, and returns the last one.
func (h *helper) read() (last helperLine, err error) {
	lines := bufio.NewScanner(io.LimitReader(h.proc.Output(dray.Stdout), maxHelperOutput))
	lines.Buffer(make([]byte, 0, 4<<10), maxHelperLine)
	for lines.Scan() {
		last = helperLine{}
		if json.Unmarshal(lines.Bytes(), &last) != nil {
			return helperLine{}, errors.New("it wrote something else than JSON")
		}
		if last.Progress != "" {
			h.progress(last.Progress)
		}
	}
	return last, lines.Err()
}

// outcome returns the result or the error of the last line. err is the error of reading the lines.
func (h *helper) outcome(last helperLine, exit dray.Exit, err error) (interpreter, error) {
	switch {
	case err != nil:
		return interpreter{}, notPythonError(err.Error())
	case last.Error != nil:
		return interpreter{}, helperError(last.Error.Kind, plain(last.Error.Message, maxHelperMessage))
	case last.Result != nil && exit.Code == 0 && exit.Signal == 0:
		return *last.Result, nil
	case exit.Signal != 0:
		return interpreter{}, dray.Errorf(dray.CodeTransferFailed,
			"prepare was killed in the environment (%v)", exit.Signal).
			WithHint("nothing was changed; repeat the call")
	}
	return interpreter{}, notPythonError(fmt.Sprintf("exit code %d: %s", exit.Code,
		plain(h.stderr, maxMessageOfPython)))
}

func notPythonError(reason string) *dray.Error {
	return dray.Errorf(dray.CodeInvalidInput,
		"the interpreter does not answer as Python 3.9 or later: %s", reason).
		WithHint("name the executable of a Python 3.9 or later, or a virtual environment of one")
}

// maxMessageOfPython bounds what an error repeats of an interpreter's stderr.
const maxMessageOfPython = 500

// helperError returns the error for a kind that source/prepare.py reports.
func helperError(kind, message string) *dray.Error {
	known := map[string]struct {
		code       dray.Code
		text, hint string
	}{
		"no_uv": {
			dray.CodeHelperMissing, "uv is missing in the environment of the session",
			"install it there: curl -LsSf https://astral.sh/uv/install.sh | sh, or pip install uv",
		},
		"no_python": {
			dray.CodeHelperMissing, "the environment has no such Python",
			"install it there (uv python install 3.N), or leave python_version out",
		},
		"too_old": {
			dray.CodeInvalidInput, "the interpreter is too old",
			"use Python 3.9 or later",
		},
		"no_place": {
			dray.CodeDenied, "the user of the session may write to no directory for packages",
			"give the user a home, mount a volume there, or set XDG_CACHE_HOME to a writable directory",
		},
		"disk_full": {
			dray.CodeDiskFull, "the disk of the environment is full",
			"free some disk space, for example with: uv cache clean",
		},
		"unsatisfiable": {
			dray.CodeInvalidInput, "the packages cannot be installed together",
			"change the requirements as the message says; packages need a wheel unless " +
				"python.prepare.source_builds is set",
		},
		"network": {
			dray.CodeTransferFailed, "the package index cannot be reached",
			"check the network of the environment and python.prepare.index",
		},
		"killed": {
			dray.CodeTransferFailed, "uv was killed", "nothing was changed; repeat the call",
		},
	}
	k, ok := known[kind]
	if !ok {
		return dray.Errorf(dray.CodeTransferFailed, "uv failed: %s", message).
			WithHint("nothing was changed; run uv in the environment to see more")
	}
	return dray.Errorf(k.code, "%s: %s", k.text, message).WithHint("%s", k.hint)
}

var interpreterVersion = regexp.MustCompile(`^3\.([0-9]{1,3})(\.[0-9]{1,3})?$`)

// check refuses a description that prepare.py cannot have written, and Python before 3.9. It
// removes packages with invalid names or versions. asked is the interpreter that was started.
func (i interpreter) check(asked string) error {
	m := interpreterVersion.FindStringSubmatch(i.Version)
	if m == nil || !isCleanPath(i.Prefix) || !isCleanPath(i.Executable) {
		return dray.Errorf(dray.CodeInvalidInput, "%s does not describe itself as a Python 3", asked).
			WithHint("name the executable of a Python 3.9 or later, or a virtual environment of one")
	}
	if minor, err := strconv.Atoi(m[1]); err != nil || minor < oldestMinor {
		return helperError("too_old", "Python "+i.Version)
	}
	maps.DeleteFunc(i.Installed, func(name, version string) bool {
		return !pep508.IsName(name) || len(version) > 100 || plain(version, 101) != version
	})
	return nil
}

func isCleanPath(name string) bool {
	return path.IsAbs(name) && path.Clean(name) == name && len(name) < 4096 &&
		plain(name, len(name)+1) == name
}

// newerThan returns the packages of i that other does not have in the same version, as
// "name==version", sorted.
func (i interpreter) newerThan(other interpreter) []string {
	names := []string{}
	for name, version := range i.Installed {
		if other.Installed[name] != version {
			names = append(names, fmt.Sprintf("%s==%s", name, version))
		}
	}
	slices.Sort(names)
	return names
}

// goneIn returns the packages of i that other has in no version, as "name==version", sorted.
func (i interpreter) goneIn(other interpreter) []string {
	names := []string{}
	for name, version := range i.Installed {
		if _, ok := other.Installed[name]; !ok {
			names = append(names, fmt.Sprintf("%s==%s", name, version))
		}
	}
	slices.Sort(names)
	return names
}

// hasVersion reports whether the interpreter has a version such as 3.12. Empty matches any.
func (i interpreter) hasVersion(version string) bool {
	return version == "" || i.Version == version || strings.HasPrefix(i.Version, version+".")
}
