-- +goose Up

-- Retention removes the body of an event and keeps its hash, so that the leaf can still be verified. Every other change is refused.
ALTER TABLE events ADD COLUMN body_sha256 BLOB;
DROP TRIGGER events_no_update;
-- +goose StatementBegin
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
WHEN OLD.body IS NULL OR NEW.body IS NOT NULL OR OLD.body_sha256 IS NOT NULL
    OR typeof(NEW.body_sha256) <> 'blob' OR length(NEW.body_sha256) <> 32
    OR (NEW.seq, NEW.invocation, NEW.kind, NEW.at, NEW.leaf) IS NOT (OLD.seq, OLD.invocation, OLD.kind, OLD.at, OLD.leaf)
BEGIN
    SELECT RAISE(ABORT, 'events are append only');
END;
-- +goose StatementEnd

-- What retention removed, one row for each event `pruned`. The ranges follow each other from event 1: up to last_seq of the last row
-- no event has a body, except for the events `pruned` themselves, and no call has a row in invocations.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- The file in captures/ with the complete lists of files of a call. Retention finds by these indexes which files are still used; few
-- calls have one.
ALTER TABLE invocations ADD COLUMN lists_sha256 TEXT;
UPDATE invocations SET lists_sha256 = lists.sha256
FROM (SELECT seq, body ->> '$.lists_file.sha256' AS sha256 FROM events
    WHERE kind = 'ended' AND instr(body, '"lists_file"') > 0 AND json_valid(body)) AS lists
WHERE lists.seq = invocations.ended_seq AND lists.sha256 IS NOT NULL;
CREATE INDEX invocations_input_file ON invocations (input_sha256) WHERE input_sha256 IS NOT NULL;
CREATE INDEX invocations_output_file ON invocations (output_sha256) WHERE output_sha256 IS NOT NULL;
CREATE INDEX invocations_lists_file ON invocations (lists_sha256) WHERE lists_sha256 IS NOT NULL;
