-- +goose Up

-- What a human decides, or has decided, about one call that policy asks about. hash identifies the call; request is what the human sees, as JSON. Times
-- are nanoseconds since 1970 UTC. state is pending, approved, denied, used or expired; seq is the event that set it.
CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    hash       TEXT NOT NULL,
    principal  TEXT NOT NULL,
    invocation TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'used', 'expired')),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    request    TEXT NOT NULL,
    decided_by TEXT,
    decided_at INTEGER,
    reason     TEXT,
    used_by    TEXT
) STRICT;
-- A call has at most one approval that is open.
CREATE UNIQUE INDEX approvals_open ON approvals (hash) WHERE state IN ('pending', 'approved');
CREATE INDEX approvals_hash ON approvals (hash, created_at);
CREATE INDEX approvals_state ON approvals (state, created_at);
CREATE INDEX approvals_seq ON approvals (seq);
