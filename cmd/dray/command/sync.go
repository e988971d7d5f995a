package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/lexical"
)

// syncFlags are the flags of sync.
type syncFlags struct {
	workspace, container, destination string
	dryRun, skipRefused, push         bool
}

func newSync(a *app) *cobra.Command {
	var f syncFlags
	cmd := &cobra.Command{
		Use:   "sync PATH...",
		Short: "Copy files between a container and the host",
		Long: `sync copies files and directories from a container to the directory sandbox.root on
the host: all of them, or none. With --push it copies files from the host to the
container. A path is a container path or a host path. A relative path is resolved
against the current directory, or against the workspace if the current directory is
outside of it.

It prints one line for each file: action, mode, size and path. With --dry-run it
prints what would change: + is a new file, ~ a file with other content (with both
SHA-256). Unchanged files are only counted.

` + exitHelpOthers,
		Example: "  dray sync build/report --dry-run\n" +
			"  dray sync /tmp/coverage.html --destination nightly\n  dray sync --push testdata",
		Args: atLeastOne("path", "dray sync build/report --dry-run"),
	}
	addWorkspaceFlag(cmd, &f.workspace)
	flags := cmd.Flags()
	flags.StringVar(&f.container, "container", "", "copy files of this `container`, by name or id")
	flags.StringVar(&f.destination, "destination", "",
		"`directory` below sandbox.root; with --push, below the container's workspace folder")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and write nothing")
	flags.BoolVar(&f.skipRefused, "skip-refused", false, "skip refused paths instead of failing")
	flags.BoolVar(&f.push, "push", false, "copy files from the host to the container")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		request, err := f.request(ctx, args)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runSync(ctx, c, request) })
	})
	return cmd
}

func (f syncFlags) request(ctx context.Context, paths []string) (client.Sync, error) {
	s := client.Sync{Container: f.container, Destination: f.destination, DryRun: f.dryRun}
	if f.skipRefused {
		s.OnRefused = "skip"
	}
	if f.push {
		s.Direction = client.ToContainer
	}
	current, err := currentDir()
	switch {
	case err != nil:
		return s, err
	case f.workspace != "" && f.container != "":
		return s, usagef("--workspace and --container exclude each other")
	case f.container == "":
		if s.Workspace, err = workspaceFolder(ctx, current, f.workspace); err != nil {
			return s, err
		}
		s.LocalEnv = localEnv(ctx, s.Workspace)
	}
	if s.Context, err = contextOf(""); err != nil {
		return s, err
	}
	s.Paths, err = f.paths(paths, current, s.Workspace)
	return s, err
}

// paths resolves relative paths. Absolute paths are sent unchanged: the daemon validates them.
func (f syncFlags) paths(given []string, current, workspace string) ([]string, error) {
	base := current
	if workspace != "" && !f.push && !lexical.Contains(workspace, current) {
		base = workspace
	}
	paths := make([]string, len(given))
	for i, p := range given {
		switch {
		case !utf8.ValidString(p):
			return nil, notUTF8(p)
		case p == "":
			return nil, usagef("a path is empty")
		case f.container != "" && !f.push && !filepath.IsAbs(p):
			return nil, usagef("relative path %q cannot be used with --container", p).
				WithHint("use an absolute path")
		default:
			paths[i] = absolute(base, p)
		}
	}
	return paths, nil
}

func (a *app) runSync(ctx context.Context, c *client.Client, request client.Sync) error {
	l := &liveCall{
		client: c, stdout: io.Discard, stderr: io.Discard,
		progress: newProgress(a.err, progressDelay),
		start:    func(ctx context.Context) (*client.Stream, error) { return c.Sync(ctx, request) },
	}
	result, err := l.run(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(syncResultOf(result.record))
	} else {
		err = a.printSync(result.record)
	}
	if code := syncExitCode(result.record); err == nil && code != exitOK {
		return exitError(code)
	}
	return err
}

// syncExitCode returns the exit code of a sync that ended.
func syncExitCode(rec dray.Record) int {
	switch {
	case rec.Status == dray.StatusSucceeded:
		return exitOK
	case rec.Reason == dray.ReasonCancelled:
		return exitInterrupted
	case rec.Error != nil:
		return exitOfCode(rec.Error.Code)
	default:
		return exitFailed
	}
}

// syncResult is the JSON output of sync: the response of POST /v1/sync, and the error if it failed.
type syncResult struct {
	ID      string             `json:"id"`
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Bytes   int64              `json:"bytes"`
	DryRun  bool               `json:"dry_run,omitzero"`
	Error   *dray.Error        `json:"error,omitzero"`
}

func syncResultOf(rec dray.Record) syncResult {
	s := syncResult{ID: rec.ID, Error: rec.Error}
	if r := rec.Metadata.Sync; r != nil {
		s.Files, s.Refused, s.Bytes, s.DryRun = r.Files, r.Refused, r.Bytes, r.DryRun
	}
	return s
}

// printSync prints the files on stdout, and on stderr refused paths, the error and a summary.
func (a *app) printSync(rec dray.Record) error {
	report := rec.Metadata.Sync
	if report == nil {
		report = &dray.SyncReport{}
	}
	a.printRefused(report)
	if rec.Status != dray.StatusSucceeded {
		a.explainSync(rec)
		return nil
	}
	a.warn(rec.Metadata.Warnings)
	t := manifest(report.Files)
	if report.DryRun {
		t = differences(report.Files)
	}
	if len(t.rows) > 0 {
		if err := t.write(a.out); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.err, "dray: "+syncSummary(report))
	return nil
}

func (a *app) printRefused(report *dray.SyncReport) {
	for _, r := range report.Refused {
		fmt.Fprintf(a.err, "dray: refused %s: %s (%s)\n", escapeLine(r.Path), escapeLine(r.Message),
			escapeLine(string(r.Code)))
	}
}

// maxOutputs bounds the declared outputs that are listed one by one.
const maxOutputs = 10

// withoutListedReasons shortens the message of a sync's error if printRefused has printed the
// reasons.
func withoutListedReasons(e *dray.Error, report *dray.SyncReport) *dray.Error {
	if e == nil || e.Code != dray.CodeSyncRefused || report == nil || len(report.Refused) == 0 {
		return e
	}
	short := *e
	short.Message = "nothing was written"
	return &short
}

// printOutputs reports the declared outputs of a call: refused ones and errors always, synced ones
// on a terminal or if the caller asked for them, as elsewhere stderr carries the tool's bytes.
func (a *app) printOutputs(rec dray.Record) {
	report := rec.Metadata.Sync
	if report == nil || rec.Tool == "sync" { // its end is reported by printSync
		return
	}
	a.printRefused(report)
	if report.Error != nil {
		a.printError(withoutListedReasons(report.Error, report))
		return
	}
	if !isTerminal(a.err) && len(rec.Sync) == 0 {
		return
	}
	for _, f := range report.Files[:min(len(report.Files), maxOutputs)] {
		fmt.Fprintf(a.err, "dray: %s %s\n", escapeLine(string(f.Action)), escapeLine(f.Path))
	}
	for _, t := range report.Targets[:min(len(report.Targets), maxOutputs)] {
		fmt.Fprintf(a.err, "dray: %s is at %s\n", escapeLine(t.Source), escapeLine(t.Path))
	}
	fmt.Fprintf(a.err, "dray: %s (call %s)\n", syncSummary(report), escapeLine(rec.ID))
}

// explainSync reports why a sync failed.
func (a *app) explainSync(rec dray.Record) {
	if rec.Reason == dray.ReasonTimeout && (rec.Error == nil || rec.Error.Code == "") {
		a.printError(endError(rec, "the sync timed out").
			WithHint("sync fewer files, or raise sandbox.timeout"))
		return
	}
	if short := withoutListedReasons(rec.Error, rec.Metadata.Sync); short != rec.Error {
		rec.Error = short.WithHint("%s", strings.Replace(short.Hint, "set on_refused to skip",
			"skip them with --skip-refused", 1))
	}
	a.printEndReason(rec)
}

// manifest returns a line for each file, with its path last.
func manifest(files []dray.SyncedFile) table {
	t := table{head: []string{"ACTION", "MODE", "SIZE", "PATH"}}
	for _, f := range files {
		t.add(string(f.Action), f.Mode, formatBytes(f.Size), f.Path)
	}
	return t
}

// differences returns a line for each file that would change.
func differences(files []dray.SyncedFile) table {
	t := table{head: []string{"", "MODE", "SIZE", "SHA-256", "PATH"}}
	for _, f := range files {
		switch f.Action {
		case dray.FileCreated:
			t.add("+", f.Mode, formatBytes(f.Size), shortHash(f.SHA256), f.Path)
		case dray.FileReplaced:
			t.add("~", f.Mode, formatBytes(f.Size), shortHash(f.SHA256Before)+" -> "+shortHash(f.SHA256),
				f.Path)
		}
	}
	return t
}

// syncSummary returns the numbers of files and bytes on one line.
func syncSummary(r *dray.SyncReport) string {
	counts := map[dray.FileAction]int{}
	for _, f := range r.Files {
		counts[f.Action]++
	}
	var parts []string
	actions := []dray.FileAction{
		dray.FileCreated, dray.FileReplaced, dray.FileUnchanged, dray.FileMounted,
	}
	for _, action := range actions {
		if n := counts[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action))
		}
	}
	if n := len(r.Refused); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", n))
	}
	files := "files"
	if len(r.Files) == 1 {
		files = "file"
	}
	line := fmt.Sprintf("%d %s, %s: %s", len(r.Files), files, formatBytes(r.Bytes),
		cmp.Or(strings.Join(parts, ", "), "nothing to do"))
	if r.DryRun {
		line += "; nothing was written"
	}
	return line
}

// formatBytes formats a number of bytes with a binary unit.
func formatBytes(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit]
}
