-- +goose Up

-- The Merkle log over the leaves of events: the hashes of its complete subtrees of 2^level leaves, for levels that are multiples of 8. All
-- other hashes are computed from these and from the leaves.
CREATE TABLE merkle_nodes (
    level INTEGER NOT NULL,
    -- The number of the subtree in its level, from 0.
    n     INTEGER NOT NULL,
    hash  BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (level, n)
) STRICT, WITHOUT ROWID;

-- The public keys of the checkpoints, the last one in use. A log that had a key never gets another one by itself.
CREATE TABLE checkpoint_keys (
    n        INTEGER PRIMARY KEY,
    verifier TEXT NOT NULL,
    -- When it was first used, in nanoseconds since 1970 UTC.
    at       INTEGER NOT NULL
) STRICT;
