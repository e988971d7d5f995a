package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/strictjson"
)

// syncTool is the tool that a sync is a call of.
const syncTool = "sync"

// syncBody is the body of a sync.
type syncBody struct {
	Workspace   string            `json:"workspace,omitempty" doc:"An absolute host folder."`
	Container   string            `json:"container,omitempty" doc:"A container's name or id."`
	Paths       []string          `json:"paths" minItems:"1" maxItems:"1000" doc:"Files and folders: the container's own paths, or the caller's."`
	Destination string            `json:"destination,omitempty" doc:"A folder below the sandbox root, or below the container's workspace folder; made where it is not there."`
	DryRun      bool              `json:"dry_run,omitempty" doc:"Say what would be done, and write nothing."`
	OnRefused   string            `json:"on_refused,omitempty" enum:"fail,skip" doc:"fail (default): one path that is refused, and nothing is written. skip: the others are."`
	Direction   Direction         `json:"direction,omitempty" enum:"to_host,to_container" doc:"Default: to_host."`
	Context     dray.CallContext  `json:"context,omitzero"`
	LocalEnv    map[string]string `json:"local_env,omitempty" doc:"The caller's values of ${localEnv:X}; neither stored nor logged."`
}

// syncInput is the input of the tool.
type syncInput struct {
	Paths       []string  `json:"paths"`
	Destination string    `json:"destination,omitzero"`
	DryRun      bool      `json:"dry_run,omitzero"`
	OnRefused   string    `json:"on_refused,omitzero"`
	Direction   Direction `json:"direction,omitzero"`
}

// syncReply is a sync that was done.
type syncReply struct {
	ID      string             `json:"id" doc:"The invocation's."`
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused" doc:"What was skipped, and why."`
	Bytes   int64              `json:"bytes" doc:"Of all files, written or unchanged."`
	DryRun  bool               `json:"dry_run,omitzero" doc:"Nothing was written."`
}

// sync makes a call of the tool sync and answers with what came home, or with its events while it
// runs. What is not done whole is an error, which has the invocation's id. A client that goes away
// cancels it.
func (s *Server) sync(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	body, inv, err := s.syncCallOf(w, r)
	if err != nil {
		return err
	}
	spec, err := s.newStartRequest(r.Context(), body, inv)
	if err != nil {
		return remapPointers(err)
	}
	c, err := s.calls.Start(r.Context(), spec)
	if err != nil {
		return err
	}
	defer c.Cancel(errClientGone) // without effect once the call is over
	if form := responseFormat(r, mediaJSON); form != mediaJSON {
		return s.streamCall(w, r, c, form)
	}
	select {
	case <-c.Done():
	case <-r.Context().Done():
	}
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	return s.replySync(w, c)
}

// syncCallOf reads the body, and makes of it that of the call.
func (s *Server) syncCallOf(w http.ResponseWriter, r *http.Request) (*callRequest, dray.Invocation,
	error,
) {
	if err := refuseIdempotencyKey(r); err != nil {
		return nil, dray.Invocation{}, err
	}
	var b syncBody
	if err := s.decode(w, r, &b); err != nil {
		return nil, dray.Invocation{}, err
	}
	var m violations
	b.check(&m)
	input, err := strictjson.Encode(syncInput{
		b.Paths, b.Destination, b.DryRun, b.OnRefused,
		b.Direction,
	})
	if err != nil {
		return nil, dray.Invocation{}, dray.Errorf(dray.CodeInternal,
			"writing the input of the tool %s: %w", syncTool, err)
	}
	call := callRequest{
		Tool: syncTool, Input: input, Workspace: b.Workspace, Container: b.Container,
		Context: b.Context, LocalEnv: b.LocalEnv,
	}
	if b.Container == "" {
		call.Environment = dray.ChooseContainer
	}
	inv := call.invocation(&m, s.cfg.MaxTimeout)
	inv.Principal = principal(r)
	return &call, inv, m.err()
}

// check tells what is wrong with the request itself. Whether a path may be taken is for the tool to
// say, which refuses each for itself.
func (b *syncBody) check(m *violations) {
	if isBlank(b.Workspace) && isBlank(b.Container) {
		m.add("/workspace", "a workspace or a container has to be named")
	}
	oneOf(m, "/on_refused", b.OnRefused, "fail", "skip")
	oneOf(m, "/direction", b.Direction, ToHost, ToContainer)
	if len(b.Paths) == 0 || len(b.Paths) > maxSync {
		m.add("/paths", "a list of 1 to %d paths has to be given", maxSync)
		return
	}
	for i, p := range b.Paths {
		if p == "" || len(p) > maxPath {
			m.add(fmt.Sprintf("/paths/%d", i), "a path has 1 to %d bytes", maxPath)
		}
	}
	checkLength(m, "/destination", b.Destination, maxPath)
}

// remapPointers points into the body of the sync what points into the input of the tool that was
// made of it.
func remapPointers(err error) error {
	known, ok := errors.AsType[*dray.Error](err)
	if !ok || len(known.Details) == 0 {
		return err
	}
	e := *dray.AsError(err)
	e.Details = slices.Clone(e.Details)
	for i := range e.Details {
		e.Details[i].Pointer = strings.TrimPrefix(e.Details[i].Pointer, "/input")
	}
	return &e
}

// syncOutcome is what an answer needs of a sync's record.
type syncOutcome struct {
	ID       string      `json:"id"`
	Status   dray.Status `json:"status"`
	Reason   dray.Reason `json:"reason"`
	Error    *dray.Error `json:"error"`
	Metadata struct {
		Sync *dray.SyncReport `json:"sync"`
	} `json:"metadata"`
}

// replySync answers with the end of a sync, or fails as it did.
func (s *Server) replySync(w http.ResponseWriter, c *call.Call) error {
	record, _ := c.Record()
	end := syncOutcome{ID: c.ID()}
	if err := json.Unmarshal(record, &end); err != nil {
		return &httpError{
			err: dray.Errorf(dray.CodeInternal, "reading how the sync ended: %w", err),
			id:  c.ID(),
		}
	}
	report := end.Metadata.Sync
	if end.Status != dray.StatusSucceeded || report == nil {
		return end.failure()
	}
	return reply(w, syncReply{
		ID: end.ID, Files: report.Files, Refused: report.Refused,
		Bytes: report.Bytes, DryRun: report.DryRun,
	})
}

// failure is the error of a sync that was not done, with all that was refused. Its code is that of
// the sync, and one that says how a call ended without one gets the nearest.
func (e syncOutcome) failure() error {
	err := e.Error
	if err == nil {
		err = dray.Errorf(dray.CodeInternal, "the sync ended without saying how").
			WithHint("GET %s tells more", location(e.ID))
	}
	failed := *err
	switch {
	case e.Metadata.Sync != nil && e.Metadata.Sync.State == dray.SyncRefused:
		failed.Code = dray.CodeSyncRefused
	case failed.Code == "" && e.Reason == dray.ReasonTimeout:
		failed.Code = dray.CodeLimitExceeded
	case failed.Code == "":
		failed.Code = dray.CodeTransferFailed
	}
	if failed.Message == "" {
		failed.Message = "the sync ended: " + string(e.Reason)
	}
	if failed.Hint == "" {
		failed.Hint = fmt.Sprintf("repeat it; GET %s tells what became of this one", location(e.ID))
	}
	answer := &httpError{err: &failed, id: e.ID}
	if r := e.Metadata.Sync; r != nil {
		answer.refused = append([]dray.RefusedPath{}, r.Refused...)
	}
	switch failed.Code {
	case dray.CodeSyncRefused, dray.CodeDiskFull, dray.CodeLimitExceeded, dray.CodeTransferFailed:
		answer.status = http.StatusUnprocessableEntity
	}
	return answer
}
