package proof

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// TileHeight is the number of levels between two levels whose nodes are stored.
const TileHeight = 8

// Node is the root of a complete subtree: the N-th one, from 0, of 2^Level leaves.
type Node struct {
	Level int
	N     int64
	Hash  tlog.Hash
}

// Edge is the right edge of a Merkle log: the roots of its largest complete subtrees. Leaves can be
// appended to it without the rest of the log. The zero value is the empty log.
type Edge struct {
	size  int64
	roots []tlog.Hash // from the largest subtree to the smallest
}

// ReadEdge returns the edge of the log with size leaves.
func ReadEdge(size int64, r tlog.HashReader) (Edge, error) {
	e := Edge{size: size}
	var indexes []int64
	for level := 62; level >= 0; level-- {
		if size>>level&1 == 1 {
			indexes = append(indexes, tlog.StoredHashIndex(level, size>>level-1))
		}
	}
	var err error
	e.roots, err = r.ReadHashes(indexes)
	return e, err
}

// Size returns the number of leaves.
func (e *Edge) Size() int64 { return e.size }

// Clone returns a copy that shares no memory.
func (e *Edge) Clone() Edge { return Edge{size: e.size, roots: slices.Clone(e.roots)} }

// Append appends a leaf. It returns the subtrees that are complete now and whose height is a
// multiple of TileHeight.
func (e *Edge) Append(leaf tlog.Hash) (complete []Node) {
	hash, level := leaf, 0
	for e.size>>level&1 == 1 {
		last := len(e.roots) - 1
		hash = tlog.NodeHash(e.roots[last], hash)
		e.roots = e.roots[:last]
		level++
		if level%TileHeight == 0 {
			complete = append(complete, Node{Level: level, N: e.size >> level, Hash: hash})
		}
	}
	e.roots = append(e.roots, hash)
	e.size++
	return complete
}

// Root returns the root hash of the log.
func (e *Edge) Root() tlog.Hash {
	if e.size == 0 {
		empty, _ := tlog.TreeHash(0, nil) // reads nothing
		return empty
	}
	last := len(e.roots) - 1
	root := e.roots[last]
	for _, left := range slices.Backward(e.roots[:last]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}
