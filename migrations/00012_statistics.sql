-- +goose Up

-- Statistics read this index instead of rows. seq keeps the order of lists.
DROP INDEX invocations_started;
CREATE INDEX invocations_started ON invocations (
    started_at, seq, tool, status, reason, principal, workspace, container, container_name, duration, bytes);
