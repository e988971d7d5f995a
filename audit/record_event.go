package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"go.uber.org/zap"
)

// RecordEvent commits an event. It blocks like a begin record, and fails with audit_unavailable;
// the event may then be committed later.
func (r *recorder) RecordEvent(ctx context.Context, body Body) error {
	e, err := r.newEvent(body)
	if err != nil {
		return err
	}
	if err := r.submit(ctx, e); err != nil {
		return unavailableError(r.path, "write the event "+body.Kind(), err)
	}
	return nil
}

// PostEvent queues an event and does not wait for its commit. Events are committed in the order of
// the calls of PostEvent. An event is lost, with a line in the log, if the store is closed.
func (r *recorder) PostEvent(body Body) {
	e, err := r.newEvent(body)
	if err == nil {
		e.caller = continued
		if !r.writer.enqueue([]*pendingEvent{e}) {
			err = errClosed
		}
	}
	if err != nil {
		r.log.Error("event not recorded", zap.String("kind", body.Kind()), zap.Error(err))
	}
}

// newEvent returns an event without secrets.
func (r *recorder) newEvent(body Body) (*pendingEvent, error) {
	e, err := newEvent(body)
	if err == nil && r.redact != nil {
		e.event.body = r.redact(e.event.body)
	}
	return e, err
}

func newEvent(body Body) (*pendingEvent, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the event %s: %w", body.Kind(), err)
	}
	e := &pendingEvent{event: event{kind: kind(body.Kind()), body: text}}
	if about, ok := body.(aboutCall); ok {
		e.event.invocation = about.call()
	}
	return e, nil
}
