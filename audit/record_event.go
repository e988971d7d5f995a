package audit

import (
	"context"
	"encoding/json"
	"fmt"
)

// The kinds of events that belong to no call.
const (
	// KindContainer records a change of state of a container (RT-07).
	KindContainer = "container"
	// KindTool records that a tool was enabled or disabled (RT-06).
	KindTool = "tool"
	// KindReload records a configuration that the daemon has applied (CF-04).
	KindReload = "reload"
)

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
