package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/strictjson"
)

// errClientGone is the cause that ends a call whose client went away. It reads as any other
// cancellation.
var errClientGone = fmt.Errorf("%w: its client went away", executor.ErrCancelled)

// start starts a call. The answer is the invocation when it has ended, 202 when wait_ms is over
// before, or its events while it runs.
func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	form := responseFormat(r, mediaJSON)
	body, inv, err := s.decodeCall(w, r)
	if err != nil {
		return err
	}
	if err := checkResponseFormat(form, wait, body); err != nil {
		return err
	}
	spec, err := s.newStartRequest(r.Context(), body, inv)
	if err != nil {
		return err
	}
	c, err := s.calls.Start(r.Context(), spec)
	if err != nil {
		return err
	}
	defer cancelOnDisconnect(r.Context(), c, wait, body.OnDisconnect)
	if form == mediaJSON {
		return s.waitAndReply(w, r, c, wait)
	}
	return s.streamCall(w, r, c, form)
}

// cancelOnDisconnect cancels a call whose client went away before its end. Whoever asked for
// wait_ms may go, unless they said otherwise; the answer that comes when the waiting is over is no
// going away.
func cancelOnDisconnect(ctx context.Context, c *call.Call, wait waitParam, onDisconnect string) {
	cancels := !wait.given
	switch onDisconnect {
	case onDisconnectContinue:
		cancels = false
	case onDisconnectCancel:
		cancels = !wait.given || ctx.Err() != nil
	}
	if cancels {
		c.Cancel(errClientGone) // without effect once the call is over
	}
}

// checkResponseFormat refuses what has no meaning for the form of the answer.
func checkResponseFormat(form string, wait waitParam, body *callRequest) error {
	switch {
	case wait.given && form != mediaJSON:
		return invalid("", "wait_ms is for answers in JSON: a stream lasts until the call ends").
			WithHint("use on_disconnect: continue, and leave the stream when you like")
	case body.OnSlowReader == onSlowReaderWait && form == mediaJSON:
		return invalid("/on_slow_reader", "on_slow_reader is for answers that are a stream").
			WithHint("accept %s or %s, or leave it out", mediaNDJSON, mediaSSE)
	}
	return nil
}

// waitAndReply answers when the call has ended, or when the waiting is over. A call that is not
// accepted yet is waited for: its id would lead nowhere.
func (s *Server) waitAndReply(w http.ResponseWriter, r *http.Request, c *call.Call,
	wait waitParam,
) error {
	ctx, cancel := wait.context(r.Context())
	defer cancel()
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	record, ended := c.Record()
	if ended {
		answer(w, http.StatusOK, mediaJSON, record)
		return nil
	}
	w.Header().Set("Location", location(c.ID()))
	answer(w, http.StatusAccepted, mediaJSON, record)
	return nil
}

// waitAccepted waits until the call has a row in the trail, and fails if it gets none.
func waitAccepted(ctx context.Context, c *call.Call) error {
	select {
	case <-c.Accepted():
		return nil
	case <-c.Done(): // so it has one, or was refused
		return c.Refused()
	case <-ctx.Done():
		return notAcceptedError(context.Cause(ctx))
	}
}

// notAcceptedError says why nobody waits any more for the row of a call. A client that goes away
// does not hear it, but one that has only ended its side of the connection, which net/http takes
// for the same.
func notAcceptedError(cause error) error {
	if errors.Is(cause, executor.ErrShutdown) {
		return dray.Errorf(dray.CodeShuttingDown, "waiting for the trail: %w", cause).
			WithHint("repeat the call")
	}
	return invalid("", "the client ended its side of the connection before the call was accepted").
		WithHint("leave the connection open in both directions until the answer is there")
}

func location(id string) string { return "/v1/invocations/" + id }

// lookupResult is a call that a request names: in memory, or in the trail alone.
type lookupResult struct {
	call   *call.Call  // nil if it is in the trail alone
	record dray.Record // of the trail
}

// find finds the call of a request. Another principal's is not found, and an id that cannot be one
// neither.
func (s *Server) find(r *http.Request) (lookupResult, error) {
	id, who := r.PathValue("id"), principal(r)
	if c, ok := s.calls.Find(id, who); ok {
		return lookupResult{call: c}, nil
	}
	missing := notFound("there is no invocation %s", truncate(id)).
		WithHint("GET /v1/invocations lists yours")
	if !isID(id) {
		return lookupResult{}, missing
	}
	rec, err := s.cfg.Records.Get(r.Context(), who, id)
	if err != nil && dray.CodeOf(err) == dray.CodeNotFound {
		return lookupResult{}, missing
	}
	return lookupResult{record: rec}, err
}

// json gives the invocation in its JSON form.
func (f lookupResult) json() ([]byte, error) {
	if f.call != nil {
		record, _ := f.call.Record()
		return record, nil
	}
	b, err := strictjson.Encode(f.record)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "writing the invocation: %w", err).
			WithHint("the daemon's log has more")
	}
	return b, nil
}

// get answers with an invocation, at once or when it has ended, at the latest after wait_ms.
func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	if f.call != nil && wait.given {
		ctx, cancel := wait.context(r.Context())
		defer cancel()
		select {
		case <-f.call.Done():
		case <-ctx.Done():
		}
	}
	b, err := f.json()
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, mediaJSON, b)
	return nil
}

// cancel ends a call, and answers as for its start: 200 with the invocation when it is over, 202
// where wait_ms was shorter. A call that has ended stays as it is.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	if err := s.decodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	if f.call != nil {
		f.call.Cancel(executor.ErrCancelled)
		return s.waitAndReply(w, r, f.call, wait)
	}
	b, err := f.json()
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, mediaJSON, b)
	return nil
}
