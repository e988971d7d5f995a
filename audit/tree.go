package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray/audit/proof"
)

// The Merkle log over the events is stored in two places: the column leaf of events, and the table
// merkle_nodes with the roots of complete subtrees of 2^8, 2^16, ... leaves. Every other hash is
// computed from at most 128 of those.

const (
	selectLeaves = `SELECT leaf FROM events WHERE seq > ? AND seq <= ? ORDER BY seq`
	selectNodes  = `SELECT hash FROM merkle_nodes WHERE level = ? AND n >= ? AND n < ? ORDER BY n`
	insertNode   = `INSERT OR REPLACE INTO merkle_nodes (level, n, hash) VALUES (?, ?, ?)`
)

// treeReader reads hashes of the Merkle log.
type treeReader struct {
	ctx context.Context //nolint:containedctx // tlog.HashReader has none; a reader serves one request
	db  querier
}

// ReadHashes implements [tlog.HashReader].
func (r treeReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		var err error
		if hashes[i], err = r.hash(tlog.SplitStoredHashIndex(index)); err != nil {
			return nil, fmt.Errorf("read the Merkle log: %w", err)
		}
	}
	return hashes, nil
}

// hash computes a hash from the stored ones at or below its level.
func (r treeReader) hash(level int, n int64) (tlog.Hash, error) {
	height := level % proof.TileHeight
	first, count := n<<height, int64(1)<<height
	stored := selectQuery{sql: selectLeaves, args: []any{first, first + count}}
	if level >= proof.TileHeight {
		stored = selectQuery{sql: selectNodes, args: []any{level - height, first, first + count}}
	}
	found, err := selectAll(r.ctx, r.db, stored, func(b *[]byte) []any { return []any{b} })
	if err != nil {
		return tlog.Hash{}, err
	}
	if int64(len(found)) != count {
		return tlog.Hash{}, fmt.Errorf("hashes from %d at level %d are missing", first, level-height)
	}
	var edge proof.Edge
	for _, b := range found {
		if len(b) != tlog.HashSize {
			return tlog.Hash{}, fmt.Errorf("a hash has %d bytes", len(b))
		}
		edge.Append(tlog.Hash(b))
	}
	return edge.Root(), nil
}

// storeMissingNodes writes the nodes of events that were committed without them, by an older
// version or another program. It reads the leaves of these events once.
func storeMissingNodes(ctx context.Context, db *sql.DB) error {
	var size, tiles int64
	err := errors.Join(db.QueryRowContext(ctx, lastSeq).Scan(&size),
		db.QueryRowContext(ctx, `SELECT coalesce(max(n), -1) + 1 FROM merkle_nodes WHERE level = ?`,
			proof.TileHeight).Scan(&tiles))
	if err != nil {
		return fmt.Errorf("read the Merkle log: %w", err)
	}
	for from := tiles << proof.TileHeight; size-from >= 1<<proof.TileHeight; from += nodesBatch {
		to := min(from+nodesBatch, size)
		if err := storeNodes(ctx, db, from, to); err != nil {
			return fmt.Errorf("write the Merkle log: %w", err)
		}
	}
	return nil
}

// nodesBatch is the number of leaves that are read for one transaction.
const nodesBatch = 1 << 16

// storeNodes writes the nodes that the leaves after from, until to, complete.
func storeNodes(ctx context.Context, db *sql.DB, from, to int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	edge, err := proof.ReadEdge(from, treeReader{ctx, tx})
	if err != nil {
		return err
	}
	leaves, err := selectAll(ctx, tx, selectQuery{sql: selectLeaves, args: []any{from, to}},
		func(b *[]byte) []any { return []any{b} })
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if len(leaf) != tlog.HashSize {
			return fmt.Errorf("a leaf has %d bytes", len(leaf))
		}
		for _, node := range edge.Append(tlog.Hash(leaf)) {
			if _, err := tx.ExecContext(ctx, insertNode, node.Level, node.N, node.Hash[:]); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// readEdge returns the right edge of the log with size events.
func readEdge(ctx context.Context, db querier, size int64) (proof.Edge, error) {
	return proof.ReadEdge(size, treeReader{ctx, db})
}
