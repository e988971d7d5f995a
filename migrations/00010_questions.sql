-- +goose Up

-- What questions ask for by itself: the workspace that a call was routed to, else the one that it named; its labels, a JSON object; and the code of
-- its error. Most calls have neither labels nor an error, so their indexes have few entries.
ALTER TABLE invocations ADD COLUMN workspace TEXT;
ALTER TABLE invocations ADD COLUMN labels TEXT;
ALTER TABLE invocations ADD COLUMN code TEXT;
CREATE INDEX invocations_workspace ON invocations (workspace, started_at) WHERE workspace IS NOT NULL;
CREATE INDEX invocations_code ON invocations (code, started_at) WHERE code IS NOT NULL;
CREATE INDEX invocations_duration ON invocations (duration);

-- The index of the column labels, which triggers keep.
-- +goose StatementBegin
CREATE TABLE labels (
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL REFERENCES invocations (seq) ON DELETE CASCADE,
    PRIMARY KEY (name, value, started_at, seq)
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd
CREATE INDEX labels_seq ON labels (seq);
-- +goose StatementBegin
CREATE TRIGGER invocations_labels_insert AFTER INSERT ON invocations WHEN NEW.labels IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO labels SELECT key, value, NEW.started_at, NEW.seq FROM json_each(NEW.labels);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER invocations_labels_update AFTER UPDATE OF labels, started_at ON invocations
BEGIN
    DELETE FROM labels WHERE seq = OLD.seq;
    INSERT OR IGNORE INTO labels SELECT key, value, NEW.started_at, NEW.seq FROM json_each(NEW.labels);
END;
-- +goose StatementEnd

UPDATE invocations SET
    workspace = (SELECT coalesce(nullif(body ->> '$.route.workspace', ''), nullif(body ->> '$.workspace', ''))
        FROM events WHERE events.seq = invocations.seq AND json_valid(body)),
    labels = (SELECT nullif(body -> '$.context.labels', '{}')
        FROM events WHERE events.seq = invocations.seq AND json_valid(body)),
    code = (SELECT nullif(body ->> '$.error.code', '')
        FROM events WHERE events.seq = invocations.ended_seq AND json_valid(body));
