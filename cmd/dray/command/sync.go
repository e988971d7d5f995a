package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// syncFlags are what the command line says of a sync.
type syncFlags struct {
	workspace, container, destination string
	dryRun, skipRefused, push         bool
}

func newSync(a *app) *cobra.Command {
	var f syncFlags
	cmd := &cobra.Command{
		Use:   "sync PATH...",
		Short: "Bring files of a container home, or take some there",
		Long: `sync brings files and folders of a container home into the folder that
sandbox.root names: all of them, or none. A path is the container's own or the
host's; a relative one begins at the current folder, or at the workspace where
that lies elsewhere. With --push files of the host go to the container.

It prints a line for each file: what became of it, its mode, size and path. With
--dry-run it prints what would: + is a new file, ~ one with another content (with
both SHA-256), and what is the same is counted.

` + exitHelpOthers,
		Example: "  dray sync build/report --dry-run\n  dray sync /tmp/coverage.html --destination nightly\n  dray sync --push testdata",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("there is no path to sync").
					WithHint("for instance: dray sync build/report --dry-run")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&f.workspace, "workspace", "w", "", "workspace `folder` (default the nearest with a devcontainer)")
	cmd.Flags().StringVar(&f.container, "container", "", "files of this `container`, by name or id")
	cmd.Flags().StringVar(&f.destination, "destination", "", "`folder` below the sandbox root, or with --push below the container's workspace folder")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and write nothing")
	cmd.Flags().BoolVar(&f.skipRefused, "skip-refused", false,
		"go on without the paths that are refused")
	cmd.Flags().BoolVar(&f.push, "push", false, "take files of the host to the container")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		request, err := f.request(args)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runSync(ctx, c, request) })
	})
	return cmd
}

// request makes the body.
func (f syncFlags) request(paths []string) (client.Sync, error) {
	s := client.Sync{Container: f.container, Destination: f.destination, DryRun: f.dryRun}
	if f.skipRefused {
		s.OnRefused = "skip"
	}
	if f.push {
		s.Direction = client.ToContainer
	}
	current, err := currentFolder()
	switch {
	case err != nil:
		return s, err
	case f.workspace != "" && f.container != "":
		return s, usagef("--workspace and --container contradict each other")
	case f.container == "":
		if s.Workspace, err = workspaceFolder(current, f.workspace); err != nil {
			return s, err
		}
		s.LocalEnv = localEnv(s.Workspace)
	}
	s.Paths, err = f.paths(paths, current, s.Workspace)
	return s, err
}

// paths makes relative paths absolute. What is absolute goes out as it is: to judge it is the
// daemon's business.
func (f syncFlags) paths(given []string, current, workspace string) ([]string, error) {
	from := current
	if workspace != "" && !f.push && !beneath(workspace, current) {
		from = workspace
	}
	paths := make([]string, len(given))
	for i, p := range given {
		switch {
		case !utf8.ValidString(p):
			return nil, usagef("%q is not UTF-8", p).
				WithHint("a request is JSON, which carries UTF-8 only: name the folder around it")
		case p == "":
			return nil, usagef("a path is empty")
		case filepath.IsAbs(p):
			paths[i] = p
		case f.container != "" && !f.push:
			return nil, usagef("%q is relative, and the container has no current folder", p).
				WithHint("write it from / on")
		default:
			paths[i] = filepath.Join(from, p)
		}
	}
	return paths, nil
}

func (a *app) runSync(ctx context.Context, c *client.Client, request client.Sync) error {
	shown := newSyncProgress(newProgress(a.err, progressPatience))
	l := &liveCall{
		client: c, stdout: io.Discard, stderr: io.Discard, progress: shown.progress, onProgress: shown.show,
		start: func(ctx context.Context) (*client.Stream, error) { return c.Sync(ctx, request) },
	}
	end, err := l.run(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(syncedOf(end.record))
	} else {
		err = a.printSync(end.record)
	}
	if code := syncExitCode(end.record); err == nil && code != exitOK {
		return exitError(code)
	}
	return err
}

// syncExitCode gives the exit code of a sync that ended.
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

// syncedFiles is a sync for programs: the answer of POST /v1/sync, and beside it why it was not
// done.
type syncedFiles struct {
	ID      string             `json:"id"`
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Bytes   int64              `json:"bytes"`
	DryRun  bool               `json:"dry_run,omitzero"`
	Error   *dray.Error        `json:"error,omitzero"`
}

func syncedOf(rec dray.Record) syncedFiles {
	s := syncedFiles{ID: rec.ID, Error: rec.Error}
	if r := rec.Metadata.Sync; r != nil {
		s.Files, s.Refused, s.Bytes, s.DryRun = r.Files, r.Refused, r.Bytes, r.DryRun
	}
	return s
}

// printSync prints what became of the files on stdout, and on stderr what was refused, what went
// wrong, and how much it was.
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
	t := manifestOf(report.Files)
	if report.DryRun {
		t = differenceOf(report.Files)
	}
	if len(t.rows) > 0 {
		if err := t.write(a.out); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.err, "dray: "+summaryOf(report))
	return nil
}

func (a *app) printRefused(report *dray.SyncReport) {
	for _, r := range report.Refused {
		fmt.Fprintf(a.err, "dray: refused %s: %s (%s)\n", escapeLine(r.Path), escapeLine(r.Message),
			escapeLine(string(r.Code)))
	}
}

// maxOutputs is how many declared outputs are told of one by one.
const maxOutputs = 10

// withoutListedReasons is an error of a sync without the reasons that printRefused has given.
func withoutListedReasons(e *dray.Error, report *dray.SyncReport) *dray.Error {
	if e == nil || e.Code != dray.CodeSyncRefused || report == nil || len(report.Refused) == 0 {
		return e
	}
	short := *e
	short.Message = "nothing was written"
	return &short
}

// printOutputs says what became of the declared outputs of a call: what did not come always, and
// what did to people only, since a program that reads stderr wants the tool's bytes.
func (a *app) printOutputs(rec dray.Record) {
	report := rec.Metadata.Sync
	if report == nil || rec.Tool == "sync" { // whose end is that of the call
		return
	}
	a.printRefused(report)
	if report.Error != nil {
		a.printError(withoutListedReasons(report.Error, report))
		return
	}
	if !isTerminal(a.err) {
		return
	}
	for _, f := range report.Files[:min(len(report.Files), maxOutputs)] {
		fmt.Fprintf(a.err, "dray: %s %s\n", escapeLine(string(f.Action)), escapeLine(f.Path))
	}
	fmt.Fprintln(a.err, "dray: "+summaryOf(report))
}

// explainSync says why a sync was not done.
func (a *app) explainSync(rec dray.Record) {
	if rec.Reason == dray.ReasonTimeout && (rec.Error == nil || rec.Error.Code == "") {
		a.printError((&dray.Error{Message: messageOrDefault(rec, "the sync timed out")}).
			WithHint("sandbox.timeout says how long one may take"))
		return
	}
	if short := withoutListedReasons(rec.Error, rec.Metadata.Sync); short != rec.Error {
		rec.Error = short.WithHint("leave out what is refused, or let the others come: --skip-refused")
	}
	a.printEndReason(rec)
}

// manifestOf has a line for each file. The paths stand at the end, as they have any length.
func manifestOf(files []dray.SyncedFile) table {
	t := table{head: []string{"ACTION", "MODE", "SIZE", "PATH"}}
	for _, f := range files {
		t.add(string(f.Action), f.Mode, bytesText(f.Size), f.Path)
	}
	return t
}

// differenceOf has a line for each file that would be another one afterwards.
func differenceOf(files []dray.SyncedFile) table {
	t := table{head: []string{"", "MODE", "SIZE", "SHA-256", "PATH"}}
	for _, f := range files {
		switch f.Action {
		case dray.FileCreated:
			t.add("+", f.Mode, bytesText(f.Size), shortHash(f.SHA256), f.Path)
		case dray.FileReplaced:
			t.add("~", f.Mode, bytesText(f.Size), shortHash(f.SHA256Before)+" -> "+shortHash(f.SHA256),
				f.Path)
		}
	}
	return t
}

// summaryOf says how much it was.
func summaryOf(r *dray.SyncReport) string {
	counts := map[dray.FileAction]int{}
	for _, f := range r.Files {
		counts[f.Action]++
	}
	var parts []string
	for _, action := range []dray.FileAction{
		dray.FileCreated, dray.FileReplaced, dray.FileUnchanged,
		dray.FileMounted,
	} {
		if n := counts[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action))
		}
	}
	if n := len(r.Refused); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", n))
	}
	line := fmt.Sprintf("%s, %s: %s", countOf(len(r.Files), "file"), bytesText(r.Bytes),
		cmp.Or(strings.Join(parts, ", "), "nothing to do"))
	if r.DryRun {
		line += "; nothing was written"
	}
	return line
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// bytesText is a number of bytes as people read it.
func bytesText(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit]
}

var units = []string{"KiB", "MiB", "GiB", "TiB"}

// transferred is how a sync tells how far it is.
var transferred = regexp.MustCompile(`^(\d{1,9}) files and folders, (\d{1,9}\.\d) MB$`)

// syncProgress shows how far a sync is on a terminal: files, bytes, and how many bytes a second
// since the first was told of. Where stderr is no terminal it shows what comes before alone, such
// as a container that is brought up.
type syncProgress struct {
	progress *progress
	since    time.Time
	from     int64
}

func newSyncProgress(p *progress) *syncProgress { return &syncProgress{progress: p} }

func (t *syncProgress) show(phase, message string) {
	m := transferred.FindStringSubmatch(message)
	if m == nil {
		t.progress.show(phase, message)
		return
	}
	if !t.progress.terminal {
		return
	}
	megabytes, _ := strconv.ParseFloat(m[2], 64) // it has so few digits that it is one
	t.progress.show(phase, t.line(message, int64(megabytes*1e6), time.Now()))
}

// line is what is shown at a moment.
func (t *syncProgress) line(message string, bytes int64, now time.Time) string {
	if t.since.IsZero() {
		t.since, t.from = now, bytes
		return message
	}
	if span := now.Sub(t.since); span > 0 && bytes >= t.from {
		message += fmt.Sprintf(", %.1f MB/s", float64(bytes-t.from)/1e6/span.Seconds())
	}
	return message
}
