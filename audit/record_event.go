package audit

import (
	"context"
	"encoding/json"
	"fmt"
)

// KindContainer is the kind of an event that records a change of state of a container (RT-07).
const KindContainer = "container"

// RecordEvent commits an event that belongs to no call, with body as its JSON. It blocks like a
// begin record, and fails with audit_unavailable; the event may then be committed later.
func (r *recorder) RecordEvent(ctx context.Context, eventKind string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the event %s: %w", eventKind, err)
	}
	e := &pendingEvent{event: event{kind: kind(eventKind), body: text}}
	if err := r.submit(ctx, e); err != nil {
		return unavailableError(r.path, "write the event "+eventKind, err)
	}
	return nil
}
