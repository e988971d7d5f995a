package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/lexical"
)

func newAuditList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, newest first",
		Long: `list lists calls, newest first. Callers see their own calls; root and the daemon's
user see the calls of all. On a terminal lines are cut to its width and ids are short:
commands take the beginning of an id too. Times are local; --utc prints them in UTC.`,
		Example: "  dray audit list --limit 5\n  dray audit list --status failed --since 24h\n" +
			"  dray audit list --workspace . --sort duration\n" +
			"  dray audit list --argv 'go test' --all --json",
		Args: noArgs,
	}
	flags := append(slices.Clip(callFilters), filterFlag{
		"sort", "sort", "`order`: started (newest first) or duration (longest first)", nil,
	})
	return pagedList[dray.Record]{
		flags: flags, fetch: (*client.Client).Invocations, head: callColumns,
		row: func(t *table, rec dray.Record) { t.add(a.callCells(rec)...) },
	}.complete(a, cmd)
}

var callColumns = []string{
	"TIME", "ID", "TOOL", "WHERE", endColumn, "MS", "PRINCIPAL", "WORKSPACE", "COMMAND",
}

const endColumn = "END"

// callCells returns the line of a call in a table. On a terminal ids are short: commands take the
// beginning of an id too.
func (a *app) callCells(rec dray.Record) []string {
	id := rec.ID
	if isTerminal(a.out) {
		id = shortID(id)
	}
	return []string{
		a.time(rec.StartedAt), id, rec.Tool, where(rec), endOf(rec), milliseconds(rec.DurationMS),
		rec.Principal, cmp.Or(rec.Route.Workspace, rec.Workspace, "-"), commandLine(rec.Input),
	}
}

// shortID returns the part of an id that has its time, to a quarter of a millisecond.
func shortID(id string) string { return id[:min(len(id), 18)] }

// commandLine returns what a call ran: its argv, quoted as for a shell, or its command.
func commandLine(input json.RawMessage) string {
	var in struct {
		Argv    []string `json:"argv"`
		Command string   `json:"command"`
	}
	if json.Unmarshal(input, &in) != nil { // of another tool
		return "-"
	}
	words := make([]string, len(in.Argv))
	for i, word := range in.Argv {
		words[i] = lexical.ShellWord(word)
	}
	return cmp.Or(strings.Join(words, " "), in.Command, "-")
}

// table returns a table for our output: on a terminal its lines fit, and the ends of calls have a
// colour unless $NO_COLOR is set (https://no-color.org).
func (a *app) table(head ...string) table {
	t := table{head: head}
	if !isTerminal(a.out) {
		return t
	}
	t.width = columns(a.out)
	if os.Getenv("NO_COLOR") == "" {
		t.paint = paintEnd
	}
	return t
}

// paintEnd returns how a call ended in green, red, or yellow while it runs.
func paintEnd(column, cell string) string {
	color := 31
	switch {
	case column != endColumn || cell == endColumn:
		return cell
	case cell == string(dray.StatusSucceeded):
		color = 32
	case cell == string(dray.StatusRunning), cell == string(dray.StatusQueued):
		color = 33
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, cell)
}

// where returns "host", or the name of the container that a call ran in. If the record has no name,
// because no container was found or the call was interrupted, it returns the workspace.
func where(rec dray.Record) string {
	name, route := "", rec.Route
	if m := rec.Metadata.Container; m != nil {
		name = m.Name
	}
	if route.Environment == dray.KindContainer {
		name = cmp.Or(name, route.Container, route.Workspace)
	}
	return cmp.Or(name, string(route.Environment))
}

// endOf returns how a call ended, in one word or two.
func endOf(rec dray.Record) string {
	exited := rec.Reason == dray.ReasonExited && rec.ExitCode != nil
	switch {
	case rec.Reason == "", exited && rec.Status == dray.StatusSucceeded:
		return string(rec.Status)
	case rec.Reason == dray.ReasonInterrupted:
		return string(rec.Reason)
	case exited && *rec.ExitCode != 0:
		return "exit " + strconv.Itoa(*rec.ExitCode)
	case rec.Reason == dray.ReasonSignalled && rec.Signal != nil:
		return rec.Signal.Name
	case rec.Error != nil && rec.Error.Code != "":
		return string(rec.Error.Code)
	default:
		return string(rec.Reason)
	}
}

// milliseconds returns a duration for a table cell, "" for none.
func milliseconds(ms *float64) string {
	if ms == nil {
		return ""
	}
	return strconv.FormatFloat(*ms, 'f', 1, 64)
}
