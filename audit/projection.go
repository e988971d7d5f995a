package audit

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"

	"github.com/dray-dev/dray"
)

// The rows of invocations are a function of the bodies of events, so that they can be verified and
// rebuilt from them. The first argument of each statement is the seq of the event.

const projectBegun = `INSERT INTO invocations
	(seq, id, tool, principal, plan_id, session_id, status, environment, container, workspace,
	labels, started_at, input_sha256, idempotency_key, idempotency_request)
	VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?)`

// args returns the other arguments of projectBegun.
func (b beginBody) args(id string) []any {
	claim := cmp.Or(b.Idempotency, &dray.Idempotency{})
	return []any{
		id, b.Tool, b.Principal, nullString(b.Context.PlanID), nullString(b.Context.SessionID),
		nullString(string(b.Route.Environment)), nullString(b.Route.Container),
		nullString(cmp.Or(b.Route.Workspace, b.Workspace)), b.labels(),
		b.StartedAt.UnixNano(), b.InputFile.name(), nullString(claim.Key), nullString(claim.Request),
	}
}

// labels returns the labels as a JSON object, NULL for none. A trigger indexes them.
func (b beginBody) labels() sql.NullString {
	if len(b.Context.Labels) == 0 {
		return sql.NullString{}
	}
	labels, _ := json.Marshal(b.Context.Labels) // texts always have a JSON form
	return nullString(string(labels))
}

const (
	projectEnded = `UPDATE invocations SET ` + endedColumns

	// projectNothingRan also releases the idempotency key, so that a repeat runs.
	projectNothingRan = `UPDATE invocations SET
	idempotency_key = NULL, idempotency_request = NULL, ` + endedColumns

	endedColumns = `
	ended_seq = ?, status = ?, reason = ?, exit_code = ?, environment = ?,
	container = ?, container_name = ?, container_id = ?, image = ?,
	ended_at = ?, duration = ?, bytes = ?, code = ?, output_sha256 = ?, lists_sha256 = ?,
	metadata_container = ?
	WHERE id = ? AND status = 'running'`
)

// errBegunTooLate ends a call whose begin record was committed after the call had been refused.
var errBegunTooLate = dray.Errorf(dray.CodeAuditUnavailable,
	"the begin record was committed too late: the call was refused, and nothing ran")

// statement returns projectEnded or projectNothingRan.
func (b endBody) statement() string {
	late := errBegunTooLate
	if b.Error != nil && b.Error.Code == late.Code && b.Error.Message == late.Message {
		return projectNothingRan
	}
	return projectEnded
}

// args returns the other arguments of projectEnded.
func (b endBody) args(id string) []any {
	c := cmp.Or(b.Metadata.Metadata.Container, &dray.ContainerMetadata{})
	return []any{
		string(b.Status), nullString(string(b.Reason)), b.ExitCode,
		nullString(string(b.Route.Environment)), nullString(b.Route.Container),
		nullString(c.Name), nullString(c.ID), nullString(c.Image),
		b.EndedAt.UnixNano(), b.Duration, b.bytes(), b.code(), b.OutputFile.name(),
		b.ListsFile.name(), nullString(string(b.Metadata.Container)), id,
	}
}

// code returns the code of the error, NULL for none.
func (b endBody) code() sql.NullString {
	if b.Error == nil {
		return sql.NullString{}
	}
	return nullString(string(b.Error.Code))
}

// bytes returns what [dray.Result.Bytes] returns for the result.
func (b endBody) bytes() int64 {
	res := dray.Result{Stdout: b.Stdout, Stderr: b.Stderr, Metadata: b.Metadata.Metadata}
	output := int64(len(bytes.TrimSpace(b.Output))) // a body is read without the spaces around it
	if b.OutputFile != nil {
		output = b.OutputFile.Bytes
	}
	return res.Bytes() + max(0, output-b.Stdout.TotalBytes-b.Stderr.TotalBytes)
}

const projectInterrupted = `UPDATE invocations SET
	ended_seq = ?, status = ?, reason = ?, code = ?, ended_at = ?, lists_sha256 = ?
	WHERE id = ? AND status = 'running'`

// interruptedArgs returns the other arguments of projectInterrupted.
func (b endBody) interruptedArgs(id string) []any {
	return []any{
		string(b.Status), string(b.Reason), b.code(), b.EndedAt.UnixNano(), b.ListsFile.name(), id,
	}
}
