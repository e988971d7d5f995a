-- +goose Up

-- What a call counts towards the budget of its plan, in bytes: NULL for calls of older versions, and while a call runs.
ALTER TABLE invocations ADD COLUMN bytes INTEGER;
CREATE INDEX invocations_session ON invocations (session_id, started_at) WHERE session_id IS NOT NULL;
