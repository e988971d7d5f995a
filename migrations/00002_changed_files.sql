-- +goose Up

-- The files that dray itself changed, for tools that write and for syncs, written in the transaction of the event that tells how the call ended. A
-- call that was interrupted has none: how far it came is not known.
-- +goose StatementBegin
CREATE TABLE changed_files (
    -- The ended event, and the number of the change within it, from 0.
    seq           INTEGER NOT NULL REFERENCES events (seq),
    n             INTEGER NOT NULL,
    invocation    TEXT NOT NULL,
    principal     TEXT NOT NULL,
    plan_id       TEXT,
    -- Whose file it is: host or container. The path is absolute there.
    environment   TEXT NOT NULL,
    path          TEXT NOT NULL,
    -- created, replaced, and what else may become of a file.
    action        TEXT NOT NULL,
    sha256_before TEXT,
    sha256_after  TEXT,
    -- When the call ended, in nanoseconds since 1970 UTC.
    at            INTEGER NOT NULL,
    PRIMARY KEY (seq, n)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- Pages are ordered by (seq, n), newest first; SQLite ends both indexes with them by itself. The changes of one invocation have one seq.
CREATE INDEX changed_files_plan ON changed_files (plan_id) WHERE plan_id IS NOT NULL;
CREATE INDEX changed_files_path ON changed_files (path);
