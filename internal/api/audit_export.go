package api

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/validate"
)

const mediaCSV = "text/csv; charset=utf-8"

// export responds with all calls that the caller may see, complete. An error before the first call
// is an error response; a later one breaks the connection, so that the client does not take a part
// for all of it.
func (h *lists) export(w http.ResponseWriter, r *http.Request) error {
	q, err := h.query(r)
	if err != nil {
		return err
	}
	if !r.URL.Query().Has("limit") {
		q.Limit = 0
	}
	var v validate.Violations
	format := validate.OneOf(&v, "format", r.URL.Query().Get("format"), "jsonl", "csv")
	follow := validate.OneOf(&v, "follow", r.URL.Query().Get("follow"), "0", "1")
	if follow == "1" && format == "csv" {
		v.Add("format", "calls are followed as jsonl only")
	}
	begun := validate.OneOf(&v, "begun", r.URL.Query().Get("begun"), "0", "1")
	if begun == "1" && follow != "1" {
		v.Add("begun", "it needs follow=1")
	}
	if follow == "1" && begun != "1" && q.Status == dray.StatusRunning {
		v.Add("status", "calls are followed when they end, unless begun=1 is given")
	}
	if err := v.ParamErr(); err != nil {
		return err
	}
	e := &exporter{query: q}
	after, err := parseAfter(r)
	if err != nil {
		return err
	}
	if follow == "1" {
		return h.follow(w, r, e, audit.FollowQuery{Query: q.Query, After: after, Begun: begun == "1"})
	}
	e.out.w, e.out.format = w, mediaNDJSON
	if format == "csv" {
		e.out.format = mediaCSV
		e.csv = csv.NewWriter(&e.out)
		_ = e.csv.Write(csvColumns) // it is buffered
	}
	err = h.audit.Export(r.Context(), q.Query, e)
	if err == nil {
		err = e.end()
	}
	if err != nil && e.out.headersSent {
		if !e.out.clientGone {
			h.log.Warn("export ended early", zap.Error(err))
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// seqHeader is the number of the event after which calls are followed.
const seqHeader = "Dray-Audit-Seq"

// follow responds with calls as they end, or begin and end, until the client disconnects or the
// server shuts down.
func (h *lists) follow(w http.ResponseWriter, r *http.Request, e *exporter, q audit.FollowQuery,
) error {
	if q.After == 0 && !r.URL.Query().Has("after") {
		var err error
		if q.After, err = h.audit.LastSeq(r.Context()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	//nolint:contextcheck // the end of the server ends it too
	defer context.AfterFunc(h.following, cancel)()
	w.Header().Set(seqHeader, strconv.FormatInt(q.After, 10))
	e.out.w, e.out.format = w, mediaNDJSON
	if err := e.Waiting(); err != nil { // the header is needed at once
		return nil // the client has disconnected
	}
	err := h.audit.Follow(ctx, q, e)
	if err != nil && ctx.Err() == nil && !e.out.clientGone {
		h.log.Warn("following the audit log ended early", zap.Error(err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

// Followed writes a call that has begun or ended.
func (e *exporter) Followed(seq int64, rec dray.Record) error {
	return e.line(struct {
		Seq int64 `json:"seq"`
		dray.Record
	}{seq, rec})
}

// Waiting sends what is buffered.
func (e *exporter) Waiting() error { return e.out.flush() }

// exporter writes calls as JSON Lines, or as CSV if csv is set.
type exporter struct {
	query callQuery
	out   streamWriter
	csv   *csv.Writer
}

// Call writes a call.
func (e *exporter) Call(rec dray.Record) error {
	e.query.markQueued(&rec)
	if e.csv == nil {
		return e.line(rec)
	}
	return e.csvRow(csvCells(rec))
}

// Unreadable writes a row that cannot be read: as CSV with the message as its error.
func (e *exporter) Unreadable(row audit.Unreadable) error {
	if e.csv == nil {
		return e.line(struct {
			Unreadable audit.Unreadable `json:"unreadable"`
		}{row})
	}
	cells := make([]string, len(csvColumns))
	cells[slices.Index(csvColumns, "error")] = row.Message
	return e.csvRow(cells)
}

func (e *exporter) line(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	_, err = e.out.Write(append(b, '\n'))
	return err
}

func (e *exporter) csvRow(cells []string) error {
	if err := e.csv.Write(cells); err != nil {
		return err
	}
	return e.csv.Error()
}

func (e *exporter) end() error {
	if e.csv != nil {
		e.csv.Flush()
	}
	return e.out.flush()
}

var csvColumns = []string{
	"id", "started_at", "ended_at", "duration_ms", "tool", "status", "reason", "exit_code", "code",
	"error", "environment", "container", "container_id", "image", "workspace", "principal", "plan_id",
	"session_id", "labels", "command", "stdout_bytes", "stderr_bytes",
}

// csvCells returns the cells of a call, in the order of csvColumns. No cell is a formula for a
// spreadsheet: those that would be begin with a quote (OWASP, CSV injection).
func csvCells(rec dray.Record) []string {
	c := dray.ContainerMetadata{Name: rec.Route.Container}
	if rec.Metadata.Container != nil {
		c = *rec.Metadata.Container
	}
	var failure dray.Error
	if rec.Error != nil {
		failure = *rec.Error
	}
	cells := []string{
		rec.ID, rec.StartedAt.Format(time.RFC3339Nano), "", "", rec.Tool, string(rec.Status),
		string(rec.Reason), "", string(failure.Code), failure.Message, string(rec.Route.Environment),
		c.Name, c.ID, c.Image, cmp.Or(rec.Route.Workspace, rec.Workspace), rec.Principal,
		rec.Context.PlanID, rec.Context.SessionID, labelCell(rec.Context.Labels), commandCell(rec.Input),
		strconv.FormatInt(rec.Stdout.TotalBytes, 10), strconv.FormatInt(rec.Stderr.TotalBytes, 10),
	}
	if rec.EndedAt != nil {
		cells[2] = rec.EndedAt.Format(time.RFC3339Nano)
	}
	if rec.DurationMS != nil {
		cells[3] = strconv.FormatFloat(*rec.DurationMS, 'f', -1, 64)
	}
	if rec.ExitCode != nil {
		cells[7] = strconv.Itoa(*rec.ExitCode)
	}
	for i, cell := range cells {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			cells[i] = "'" + cell
		}
	}
	return cells
}

// labelCell returns labels as K=V, one in a line.
func labelCell(labels map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		lines = append(lines, name+"="+labels[name])
	}
	return strings.Join(lines, "\n")
}

// commandCell returns the argv of an input as JSON, or its command.
func commandCell(input json.RawMessage) string {
	var in struct {
		Argv    json.RawMessage `json:"argv"`
		Command string          `json:"command"`
	}
	switch {
	case json.Unmarshal(input, &in) != nil:
		return ""
	case in.Argv != nil:
		return string(in.Argv)
	default:
		return in.Command
	}
}
