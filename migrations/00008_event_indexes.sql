-- +goose Up

-- Events that are not the begin or end record of a call, by kind and by call. Calls pay nothing for them.
CREATE INDEX events_kind ON events (kind) WHERE kind <> 'begun' AND kind <> 'ended';
CREATE INDEX events_invocation ON events (invocation) WHERE invocation <> '' AND kind <> 'begun' AND kind <> 'ended';
