package call

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

// maxIdempotencyKey is the maximum length of an idempotency key.
const maxIdempotencyKey = 255

// Claims finds the calls that have claimed an idempotency key. *audit.Store implements it.
type Claims interface {
	// Claimed returns the call of a principal that has claimed a key, and the hash of its request. It
	// fails with not_found if there is none.
	Claimed(ctx context.Context, principal, key string) (rec dray.Record, request string, err error)
}

// claimKey identifies a claim: the same key of another principal is another claim.
type claimKey struct{ principal, key string }

// Begin starts the call of a request, or returns the first call with its idempotency key: that may
// be running or have ended. It then prepares nothing, so the call is found also if its tool has
// been removed. Begin fails with idempotency_mismatch if the key belongs to another request, else
// like [Intake.Prepare] and [Registry.Start].
//
// The caller must call [Call.Leave] once for each call that Begin returned.
func (r *Registry) Begin(ctx context.Context, in *Intake, principal string, req *Request,
) (c *Call, repeated bool, err error) {
	claim, err := r.claimOf(req)
	if err != nil {
		return nil, false, err
	}
	if claim != nil {
		if c, err := r.findClaimed(ctx, principal, claim); c != nil || err != nil {
			return c, true, err
		}
	}
	p, err := in.Prepare(ctx, principal, req)
	if err != nil {
		return nil, false, err
	}
	return r.start(ctx, p, claim)
}

// claimOf returns the claim of a request, or nil for one without a key.
func (r *Registry) claimOf(req *Request) (*dray.Idempotency, error) {
	key := req.IdempotencyKey
	if key == nil {
		return nil, nil
	}
	if err := checkIdempotencyKey(*key); err != nil {
		return nil, err
	}
	hash, err := req.hash(r.opts.RequestKey)
	return &dray.Idempotency{Key: *key, Request: hash}, err
}

func checkIdempotencyKey(key string) error {
	invisible := func(c rune) bool { return c <= ' ' || c > '~' }
	if n := len(key); n > 0 && n <= maxIdempotencyKey && !strings.ContainsFunc(key, invisible) {
		return nil
	}
	return dray.Errorf(dray.CodeInvalidRequest, "invalid idempotency key").
		WithHint("use 1 to %d visible ASCII characters without spaces", maxIdempotencyKey)
}

// hash returns a keyed hash of what the caller sent. It does not depend on white space, on the
// order of members and on how strings are escaped. Numbers in the input count digit for digit.
func (r *Request) hash(key []byte) (string, error) {
	encoded, err := json.Marshal(r, json.Deterministic(true))
	canonical := jsontext.Value(encoded)
	if err == nil {
		err = canonical.Format(jsontext.ReorderRawObjects(true))
	}
	if err != nil {
		return "", fmt.Errorf("hash the request: %w", err)
	}
	h := hmac.New(sha256.New, key)
	h.Write(canonical)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// findClaimed returns the call that has claimed a key, or nil. One that is no longer in memory is
// made of its record in the audit log.
func (r *Registry) findClaimed(ctx context.Context, principal string, claim *dray.Idempotency,
) (*Call, error) {
	r.mu.Lock()
	c := r.claims[claimKey{principal, claim.Key}]
	r.mu.Unlock()
	if c != nil {
		return c.join(claim)
	}
	rec, request, err := r.opts.Claims.Claimed(ctx, principal, claim.Key)
	switch {
	case dray.CodeOf(err) == dray.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case request != claim.Request:
		return nil, mismatchError(rec.ID)
	case rec.EndedAt == nil:
		return nil, dray.Errorf(dray.CodeAuditUnavailable, "the first call with this idempotency key "+
			"(%s) has ended, and its end is not recorded yet", rec.ID).WithHint("repeat the request later")
	}
	return r.restore(rec), nil
}

// join adds a client to the call if it has sent the same request.
func (c *Call) join(claim *dray.Idempotency) (*Call, error) {
	if c.claim.Request != claim.Request {
		return nil, mismatchError(c.id)
	}
	c.clients.Add(1)
	return c, nil
}

func mismatchError(id string) error {
	return dray.Errorf(dray.CodeIdempotencyMismatch,
		"the idempotency key belongs to another request: invocation %s", id).
		WithHint("send the same body as then, or use a new key")
}

// Leave reports that a client of [Registry.Begin] is no longer interested. If cause is not nil and
// no other client is left, it cancels the call.
func (c *Call) Leave(cause error) {
	if c.clients.Add(-1) <= 0 && cause != nil {
		c.Cancel(cause) // no effect on an ended call
	}
}

// restore returns an ended call with the record and the captured output of the audit log. Its
// events have all of stdout before stderr.
func (r *Registry) restore(rec dray.Record) *Call {
	inv := dray.Invocation{ID: rec.ID, Tool: rec.Tool, Principal: rec.Principal}
	c := r.newCall(inv, &Prepared{}, func(error) {})
	c.onAccept = func() {}
	c.markAccepted()
	restoreOutput(c.events, dray.Stdout, rec.Stdout)
	restoreOutput(c.events, dray.Stderr, rec.Stderr)
	c.finish(rec)
	close(c.done)
	return c
}

// restoreOutput adds the output of an ended call to its events. A short one is in its record only.
func restoreOutput(events *eventlog.Log, stream dray.Stream, s dray.StreamSummary) {
	if text, whole := s.Whole(true); whole {
		events.Output(stream, text)
		return
	}
	events.Captured(stream)
}
