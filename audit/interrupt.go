package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

const projectInterrupted = `UPDATE invocations SET ended_seq = ?, status = ?, reason = ?, ended_at = ? WHERE id = ? AND status = 'running'`

// interrupt ends every call that has a begin and no end: only this daemon has the file, and it has started none yet. How long such a
// call ran nobody knows, so it gets no duration; ended_at is when it was found.
func (s *Store) interrupt(ctx context.Context) (int, error) {
	ids, err := s.running(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for calls without an end: %w", err)
	}
	jobs := make([]*pendingEvent, 0, len(ids))
	for _, id := range ids {
		j, err := interruptJob(id, time.Now().Round(0).UTC())
		if err != nil {
			return 0, err
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return 0, nil
	}
	if err := s.submit(ctx, jobs...); err != nil {
		return 0, fmt.Errorf("end the calls that were interrupted: %w", err)
	}
	return len(jobs), nil
}

func (s *Store) running(ctx context.Context) (ids []string, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id FROM invocations WHERE status = 'running' ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func interruptJob(id string, now time.Time) (*pendingEvent, error) {
	b := endBody{
		Status: dray.StatusFailed, Reason: dray.ReasonInterrupted, EndedAt: now,
		Error: dray.Errorf(dray.CodeInternal, "the daemon ended while the call ran").
			WithHint("how far the call came is not known: see what it did before you repeat it"),
	}
	body, err := encode(b, "", nil)
	if err != nil {
		return nil, err
	}
	return &pendingEvent{
		event:         event{invocation: id, kind: interrupted, body: body},
		projectionSQL: projectInterrupted,
		args:          []any{string(b.Status), string(b.Reason), now.UnixNano(), id},
	}, nil
}
