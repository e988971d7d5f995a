package command

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// syncedFiles is a sync for programs: the answer of POST /v1/sync, and beside it why it was not done.
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

// printSync prints what became of the files on stdout, and on stderr what was refused, what went wrong, and how much it was.
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
		fmt.Fprintf(a.err, "dray: refused %s: %s (%s)\n", escapeLine(r.Path), escapeLine(r.Message), escapeLine(string(r.Code)))
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

// printOutputs says what became of the declared outputs of a call: what did not come always, and what did to people only, since a program that reads
// stderr wants the tool's bytes.
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
		a.printError((&dray.Error{Message: messageOrDefault(rec, "the sync timed out")}).WithHint("sandbox.timeout says how long one may take"))
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
			t.add("~", f.Mode, bytesText(f.Size), shortHash(f.SHA256Before)+" -> "+shortHash(f.SHA256), f.Path)
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
	for _, action := range []dray.FileAction{dray.FileCreated, dray.FileReplaced, dray.FileUnchanged, dray.FileMounted} {
		if n := counts[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action))
		}
	}
	if n := len(r.Refused); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", n))
	}
	line := fmt.Sprintf("%s, %s: %s", countOf(len(r.Files), "file"), bytesText(r.Bytes), cmp.Or(strings.Join(parts, ", "), "nothing to do"))
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
