package audit

import (
	"context"

	"github.com/dray-dev/dray"
)

// PlanUsage returns what the recorded calls of a plan have used, those of all principals. A call
// that runs or was interrupted counts as a call only.
func (s *Store) PlanUsage(ctx context.Context, planID string) (dray.PlanUsage, error) {
	var used dray.PlanUsage
	err := s.read.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(duration), 0),
		coalesce(sum(bytes), 0) FROM invocations WHERE plan_id = ?`, planID).
		Scan(&used.Calls, &used.Wall, &used.Bytes)
	if err != nil {
		return used, unavailableError(s.path, "sum up the calls of plan "+planID, err)
	}
	return used, nil
}
