-- +goose Up

-- The idempotency key of a call, and the keyed hash of its request, hexadecimal. Both are NULL for a call without a key, and for one whose begin record
-- was committed too late: nothing ran, and its key is free again.
ALTER TABLE invocations ADD COLUMN idempotency_key TEXT;
ALTER TABLE invocations ADD COLUMN idempotency_request TEXT;
CREATE UNIQUE INDEX invocations_idempotency ON invocations (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;
