package command

import (
	"bytes"
	"cmp"
	"encoding/json"
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
user see the calls of all. On a terminal lines are cut to its width, a narrow one has
fewer columns, and ids are short: commands take the beginning of an id too. COMMAND is
the input of a tool that has no command. Times are local; --utc prints them in UTC.`,
		Example: "  dray audit list --limit 5\n  dray audit list --status failed --since 24h\n" +
			"  dray audit list --workspace . --sort duration\n" +
			"  dray audit list --argv 'go test' --all --json",
		Args: noArgs,
	}
	flags := append(slices.Clip(callFilters), filterFlag{
		"sort", "sort", "`order`: started (newest first) or duration (longest first)", nil,
	})
	return pagedList[dray.Record]{
		flags: flags, list: client.Invocations, head: callColumns, spare: spareCallColumns,
		row: func(t *table, rec dray.Record) { t.add(a.callCells(rec)...) },
	}.complete(a, cmd)
}

var callColumns = []string{
	"TIME", "ID", "TOOL", "WHERE", endColumn, "MS", "PRINCIPAL", "WORKSPACE", "COMMAND",
}

const endColumn = "END"

// spareCallColumns are left out on a narrow terminal, so that the command is visible.
var spareCallColumns = []string{"WORKSPACE", "PRINCIPAL", "MS"}

// callCells returns the line of a call in a table.
func (a *app) callCells(rec dray.Record) []string {
	return []string{
		a.timeCell(rec.StartedAt), a.idCell(rec.ID), rec.Tool, where(rec), endOf(rec),
		milliseconds(rec.DurationMS), rec.Principal, cmp.Or(rec.Route.Workspace, rec.Workspace, "-"),
		commandLine(rec.Input),
	}
}

// maxListedInput bounds what a list shows of an input, in bytes.
const maxListedInput = 200

// commandLine returns what a call ran: its argv, quoted as for a shell, or its command, or else the
// input of its tool.
func commandLine(input json.RawMessage) string {
	var in struct {
		Argv    []string `json:"argv"`
		Command string   `json:"command"`
	}
	if json.Unmarshal(input, &in) != nil { // of another tool
		return inputLine(input)
	}
	words := make([]string, len(in.Argv))
	for i, word := range in.Argv {
		words[i] = lexical.ShellWord(word)
	}
	return cmp.Or(strings.Join(words, " "), in.Command, inputLine(input))
}

// inputLine returns the beginning of an input in one line, "-" of one without members.
func inputLine(input json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, input) != nil || b.String() == "{}" || b.String() == "null" {
		return "-"
	}
	return lexical.Truncate(b.String(), maxListedInput)
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
