package policy

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/pathmapper"
)

// Bounds of the facts of one call. What exceeds one makes the call opaque.
const (
	maxCommand  = 64 << 10 // bytes of a command
	maxFacts    = 1000     // members of one set
	maxNesting  = 16       // shells and wrappers in each other
	pathTimeout = 2 * time.Second
)

// Facts has the attributes of a call that policies can use, as docs/reference/policy.md describes
// them. All lists are sorted.
type Facts struct {
	Environment   string   `json:"environment"`
	Container     string   `json:"container"`
	Workspace     string   `json:"workspace"`
	Cwd           string   `json:"cwd"`
	CwdInside     bool     `json:"cwd_inside"`
	Env           []string `json:"env"`
	DangerousEnv  []string `json:"dangerous_env"`
	Argv          []string `json:"argv"`
	Command       string   `json:"command"`
	Programs      []string `json:"programs"`
	Opaque        bool     `json:"opaque"`
	OpaqueReasons []string `json:"opaque_reasons"`
	Reads         []string `json:"reads"`
	Writes        []string `json:"writes"`
	ReadsOutside  []string `json:"reads_outside"`
	WritesOutside []string `json:"writes_outside"`
}

func (f Facts) record() types.Record {
	return types.NewRecord(types.RecordMap{
		"environment": types.String(f.Environment), "container": types.String(f.Container),
		"workspace": types.String(f.Workspace), "cwd": types.String(f.Cwd),
		"cwd_inside": types.Boolean(f.CwdInside), "env": textSet(f.Env),
		"dangerous_env": textSet(f.DangerousEnv), "argv": textSet(f.Argv),
		"command": types.String(f.Command), "programs": textSet(f.Programs),
		"opaque": types.Boolean(f.Opaque), "opaque_reasons": textSet(f.OpaqueReasons),
		"reads": textSet(f.Reads), "writes": textSet(f.Writes),
		"reads_outside": textSet(f.ReadsOutside), "writes_outside": textSet(f.WritesOutside),
	})
}

// FactsOf returns the facts of a call, whose invocation, tool and route are set. It uses neither
// the context of the call nor its plan (SE-05). Paths of the container are mapped to the host by
// its mounts (PM-17). A path outside of the mounts cannot be resolved and counts as outside the
// workspace. FactsOf waits at most 2 s for the mounts, and 2 s for the file system.
func FactsOf(ctx context.Context, call dray.Call, mounts MountsFunc) Facts {
	inv := call.Invocation
	side := &side{call: call, mounts: mounts}
	f := Facts{
		Environment: string(call.Route.Environment), Container: call.Route.Container,
		Workspace: cmp.Or(call.Route.Workspace, inv.Workspace),
	}
	a := newAnalysis()
	f.Cwd, a.moves = side.cwd(ctx)
	for name := range inv.Env {
		a.setText(name)
	}
	argv, inSession := commandOf(call)
	side.ofCommand = len(argv) > 0
	a.argv(argv, 0, false)
	a.close()
	if inSession {
		a.moves = a.moves || inv.StartsInSessionCwd()
		a.markOpaque("earlier commands of the session chose its directory, variables and functions")
	}
	if inv.Terminal != nil && a.programs["git"] && !a.words["--no-pager"] {
		a.markOpaque("git shows its output with a pager on a terminal")
	}
	f.Command = strings.Join(argv, " ")
	if len(f.Command) > maxCommand || len(argv) > maxFacts {
		a.markOpaque("the command is too long")
		f.Command, a.words = "", nil
	}
	if call.Tool.Name == "sync" {
		a.addSyncPaths(inv.Input, f.Workspace, side)
	}
	addPaths(a, call.Tool, jsontext.Value(inv.Input))
	f.resolve(ctx, a, side)
	f.Env, f.DangerousEnv = sortedKeys(a.env), sortedKeys(a.dangerous)
	f.Argv = sortedKeys(a.words)
	f.Programs, f.OpaqueReasons = sortedKeys(a.programs), sortedKeys(a.opaque)
	f.Opaque = len(f.OpaqueReasons) > 0
	return f
}

// commandOf returns the command of a call, nil for a tool whose input has none. inSession reports
// whether the command runs in a session of a shell.
func commandOf(call dray.Call) (argv []string, inSession bool) {
	if call.Tool.Name == "python" {
		return []string{"python3", "-"}, false
	}
	argv, session, err := Command(call.Tool.Name, call.Invocation.Input)
	if err != nil {
		return []string{dynamic}, true // not known, so not trusted
	}
	return argv, session != ""
}

// Command returns the command in an input of exec or shell, and the session in which it runs, or
// "". The argv is nil for other tools. Command fails for an input that the tool does not accept.
func Command(tool string, input []byte) (argv []string, session string, err error) {
	if tool != "exec" && tool != "shell" {
		return nil, "", nil
	}
	var in struct {
		Argv    []string `json:"argv"`
		Command string   `json:"command"`
		Shell   string   `json:"shell"`
		Session string   `json:"session"`
	}
	err = json.Unmarshal(input, &in)
	if tool == "shell" {
		in.Argv = []string{cmp.Or(in.Shell, "/bin/sh"), "-c", in.Command}
	}
	return in.Argv, in.Session, err
}

// maxPathInput bounds an input in bytes: the report of a larger one may not list all its paths.
const maxPathInput = 512 << 10

// addSyncPaths adds the paths that a sync reads: the host's, if it copies to the container, and
// otherwise those of either side.
func (a *analysis) addSyncPaths(input []byte, workspace string, side *side) {
	var in struct {
		Paths     []string `json:"paths"`
		Direction string   `json:"direction"`
	}
	if json.Unmarshal(input, &in) != nil || len(in.Paths) > maxFacts {
		in.Paths = []string{dynamic} // not known, so outside
	}
	side.ofHost = in.Direction == "to_container"
	side.ofCommand = !side.ofHost
	for _, p := range in.Paths {
		if side.ofHost && !filepath.IsAbs(p) {
			p = workspace + "/" + p
		}
		a.reads[p] = true
	}
}

// addPaths adds the values that the input schema marks as paths, at any depth. They are read if the
// tool is read-only, and otherwise written.
func addPaths(a *analysis, tool *dray.Tool, input jsontext.Value) {
	marks, err := pathmapper.CompileMarks(tool.InputSchema)
	if err != nil || !marks.Any() {
		return
	}
	into := a.writes
	if tool.Capabilities.ReadOnly {
		into = a.reads
	}
	// without mappings each path is listed as unmapped
	_, report, err := new(pathmapper.Mapper).Input(input, pathmapper.Options{
		Mode: dray.MapSchema, Marks: marks,
	})
	for _, p := range report.Unmapped {
		into[withoutScheme(p.Path)] = true
	}
	if err != nil || len(input) > maxPathInput {
		into[dynamic] = true // cannot be resolved
	}
}

// withoutScheme returns the path of a file URI, and other texts unchanged.
func withoutScheme(p string) string {
	if len(p) < 5 || !strings.EqualFold(p[:5], "file:") {
		return p
	}
	if u, err := url.Parse(p); err == nil && u.Path != "" {
		return u.Path
	}
	return dynamic
}

// resolve sets the paths of the facts. A path that cannot be resolved in time counts as outside.
func (f *Facts) resolve(ctx context.Context, a *analysis, side *side) {
	if len(a.reads) > maxFacts || len(a.writes) > maxFacts {
		a.markOpaque("there are too many paths")
	}
	reads, writes := bounded(a.reads), bounded(a.writes)
	ctx, cancel := context.WithTimeout(ctx, pathTimeout)
	defer cancel()
	type resolved struct {
		root, cwd string
		paths     map[string]string // by the path of the call
	}
	done := make(chan resolved, 1)
	cwd, workspace := f.Cwd, f.Workspace
	go func() { // ends with the file system's answer, which a hanging one delays
		at := resolved{realPath(workspace), realPath(cwd), map[string]string{}}
		for _, p := range slices.Concat(reads, writes) {
			full := p
			switch {
			case filepath.IsAbs(full):
				full = side.hostPath(ctx, full)
			case a.moves:
				full = "" // relative to a directory that is not known
			default:
				full = cwd + "/" + full // not cleaned: a .. after a symlink leads elsewhere
			}
			at.paths[p] = realPath(full)
		}
		done <- at
	}()
	var at resolved
	select {
	case at = <-done:
	case <-ctx.Done():
		a.markOpaque("its paths cannot be resolved in time")
	}
	f.CwdInside = inside(at.root, at.cwd)
	split := func(given []string) (all, outside []string) {
		all, outside = []string{}, []string{}
		for _, p := range given {
			full := strings.ReplaceAll(cmp.Or(at.paths[p], p), dynamic, "?")
			all = append(all, full)
			if !inside(at.root, at.paths[p]) {
				outside = append(outside, full)
			}
		}
		return all, outside
	}
	f.Reads, f.ReadsOutside = split(reads)
	f.Writes, f.WritesOutside = split(writes)
}

func bounded(set map[string]bool) []string {
	all := sortedKeys(set)
	return all[:min(len(all), maxFacts)]
}

func inside(root, p string) bool {
	return root != "" && root != "/" && p != "" && (p == root || strings.HasPrefix(p, root+"/"))
}

// realPath resolves the symlinks of an absolute host path, whose last components need not exist. It
// returns "" if that is impossible.
func realPath(p string) string {
	if !filepath.IsAbs(p) || len(p) > 4096 || strings.Contains(p, dynamic) {
		return ""
	}
	followed := lexical.FollowSymlinks(os.Readlink, p)
	if len(followed) > lexical.MaxSymlinks {
		return "" // there may be more
	}
	for _, link := range followed {
		if strings.HasPrefix(link, "/proc/") {
			return "" // it leads elsewhere in another process
		}
	}
	return followed[len(followed)-1]
}
