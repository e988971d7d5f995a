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

CREATE INDEX approvals_hash ON approvals (hash, created_at);

CREATE UNIQUE INDEX approvals_open ON approvals (hash) WHERE state IN ('pending', 'approved');

CREATE INDEX approvals_seq ON approvals (seq);

CREATE INDEX approvals_state ON approvals (state, created_at);

CREATE VIEW calls AS SELECT
    i.id,
    strftime('%Y-%m-%dT%H:%M:%S', i.started_at / 1000000000, 'unixepoch') || printf('.%09dZ', i.started_at % 1000000000) AS started,
    strftime('%Y-%m-%dT%H:%M:%S', i.ended_at / 1000000000, 'unixepoch') || printf('.%09dZ', i.ended_at % 1000000000) AS ended,
    i.duration / 1000000.0 AS duration_ms,
    i.tool, i.status, i.reason, i.exit_code, i.code, i.principal, i.workspace, i.environment,
    coalesce(i.container_name, i.container) AS container,
    i.container_id, i.image, i.plan_id, i.session_id, i.labels,
    CASE WHEN json_valid(b.body) THEN coalesce(
        (SELECT group_concat(value, ' ') FROM json_each(b.body, '$.input.argv')),
        b.body ->> '$.input.command') END AS command,
    i.bytes
FROM invocations i LEFT JOIN events b ON b.seq = i.seq;

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

CREATE INDEX changed_files_path ON changed_files (path);

CREATE INDEX changed_files_plan ON changed_files (plan_id) WHERE plan_id IS NOT NULL;

CREATE TABLE checkpoint_keys (
    n        INTEGER PRIMARY KEY,
    verifier TEXT NOT NULL,
    -- When it was first used, in nanoseconds since 1970 UTC.
    at       INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    -- Contiguous from 1.
    seq        INTEGER PRIMARY KEY,
    -- The invocation's id; empty for an event that belongs to none.
    invocation TEXT NOT NULL,
    -- begun, ended, interrupted. Not a CHECK: a new kind shall not need a new table.
    kind       TEXT NOT NULL,
    -- When the transaction was written, in nanoseconds since 1970 UTC. Times are integers here: they read back exact, and those of an
    -- invocation stand in every index, where a text would be four times as long. To read one: datetime(at / 1000000000, 'unixepoch').
    at         INTEGER NOT NULL,
    -- JSON. It may be NULL so that retention can drop a body one day and keep its leaf.
    body       TEXT,
    -- The RFC 6962 leaf hash of the event; package audit says of which bytes.
    leaf       BLOB NOT NULL CHECK (length(leaf) = 32)
, body_sha256 BLOB) STRICT;

CREATE INDEX events_invocation ON events (invocation) WHERE invocation <> '' AND kind <> 'begun' AND kind <> 'ended';

CREATE INDEX events_kind ON events (kind) WHERE kind <> 'begun' AND kind <> 'ended';

CREATE TRIGGER events_contiguous BEFORE INSERT ON events
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM events)
BEGIN
    SELECT RAISE(ABORT, 'events are numbered without gaps');
END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append only');
END;

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
WHEN OLD.body IS NULL OR NEW.body IS NOT NULL OR OLD.body_sha256 IS NOT NULL
    OR typeof(NEW.body_sha256) <> 'blob' OR length(NEW.body_sha256) <> 32
    OR (NEW.seq, NEW.invocation, NEW.kind, NEW.at, NEW.leaf) IS NOT (OLD.seq, OLD.invocation, OLD.kind, OLD.at, OLD.leaf)
BEGIN
    SELECT RAISE(ABORT, 'events are append only');
END;

CREATE VIEW files AS SELECT
    invocation AS call,
    strftime('%Y-%m-%dT%H:%M:%S', at / 1000000000, 'unixepoch') || printf('.%09dZ', at % 1000000000) AS ended,
    environment, path, action, sha256_before, sha256_after, plan_id, principal
FROM changed_files;

CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);

CREATE TABLE invocations (
    -- The begun event, and the one that ended the call. Events are written first: were these references deferred, SQLite would look
    -- through this table for each event.
    seq                INTEGER PRIMARY KEY REFERENCES events (seq),
    ended_seq          INTEGER REFERENCES events (seq),
    id                 TEXT NOT NULL UNIQUE,
    tool               TEXT NOT NULL,
    principal          TEXT NOT NULL,
    plan_id            TEXT,
    session_id         TEXT,
    status             TEXT NOT NULL,
    reason             TEXT,
    exit_code          INTEGER,
    environment        TEXT,
    -- What the call or the configuration named, and what the engine calls it.
    container          TEXT,
    container_name     TEXT,
    container_id       TEXT,
    image              TEXT,
    -- Nanoseconds since 1970 UTC, and nanoseconds on the monotonic clock.
    started_at         INTEGER NOT NULL,
    ended_at           INTEGER,
    duration           INTEGER,
    -- The files in captures/ that hold an input or an output too long for a row.
    input_sha256       TEXT,
    output_sha256      TEXT,
    -- JSON, as it is in the record's metadata.container.
    metadata_container TEXT
, bytes INTEGER, lists_sha256 TEXT, idempotency_key TEXT, idempotency_request TEXT, workspace TEXT, labels TEXT, code TEXT) STRICT;

CREATE INDEX invocations_code ON invocations (code, started_at) WHERE code IS NOT NULL;

CREATE INDEX invocations_container ON invocations (container, started_at) WHERE container IS NOT NULL;

CREATE INDEX invocations_container_id ON invocations (container_id, started_at) WHERE container_id IS NOT NULL;

CREATE INDEX invocations_container_name ON invocations (container_name, started_at) WHERE container_name IS NOT NULL;

CREATE INDEX invocations_duration ON invocations (duration);

CREATE INDEX invocations_environment ON invocations (environment, started_at) WHERE environment <> 'container';

CREATE UNIQUE INDEX invocations_idempotency ON invocations (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX invocations_input_file ON invocations (input_sha256) WHERE input_sha256 IS NOT NULL;

CREATE INDEX invocations_lists_file ON invocations (lists_sha256) WHERE lists_sha256 IS NOT NULL;

CREATE INDEX invocations_output_file ON invocations (output_sha256) WHERE output_sha256 IS NOT NULL;

CREATE INDEX invocations_plan ON invocations (plan_id, started_at) WHERE plan_id IS NOT NULL;

CREATE INDEX invocations_principal ON invocations (principal, started_at);

CREATE INDEX invocations_reason ON invocations (reason, started_at) WHERE reason <> 'exited';

CREATE INDEX invocations_session ON invocations (session_id, started_at) WHERE session_id IS NOT NULL;

CREATE INDEX invocations_started ON invocations (
    started_at, seq, tool, status, reason, principal, workspace, container, container_name, duration, bytes);

CREATE INDEX invocations_status ON invocations (status, started_at) WHERE status <> 'succeeded';

CREATE INDEX invocations_tool ON invocations (tool, started_at);

CREATE INDEX invocations_workspace ON invocations (workspace, started_at) WHERE workspace IS NOT NULL;

CREATE TRIGGER invocations_labels_insert AFTER INSERT ON invocations WHEN NEW.labels IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO labels SELECT key, value, NEW.started_at, NEW.seq FROM json_each(NEW.labels);
END;

CREATE TRIGGER invocations_labels_update AFTER UPDATE OF labels, started_at ON invocations
BEGIN
    DELETE FROM labels WHERE seq = OLD.seq;
    INSERT OR IGNORE INTO labels SELECT key, value, NEW.started_at, NEW.seq FROM json_each(NEW.labels);
END;

CREATE TABLE labels (
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL REFERENCES invocations (seq) ON DELETE CASCADE,
    PRIMARY KEY (name, value, started_at, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_seq ON labels (seq);

CREATE TABLE merkle_nodes (
    level INTEGER NOT NULL,
    -- The number of the subtree in its level, from 0.
    n     INTEGER NOT NULL,
    hash  BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (level, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE prunings (
    -- The event `pruned`.
    seq       INTEGER PRIMARY KEY REFERENCES events (seq),
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    -- Events up to this time, in nanoseconds since 1970 UTC, had expired.
    before    INTEGER NOT NULL,
    -- How many events lost their body, how many calls their row, and the bytes of the bodies.
    events    INTEGER NOT NULL,
    calls     INTEGER NOT NULL,
    bytes     INTEGER NOT NULL
) STRICT;

CREATE TABLE sqlite_sequence(name,seq);

