package proof

import (
	"crypto/sha256"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Event is an event of the audit log as its leaf has it.
type Event struct {
	// Seq is the number of the event, from 1.
	Seq int64
	// At is when it was committed, in nanoseconds since 1970 UTC.
	At         int64
	Kind       string
	Invocation string
	BodySHA256 [sha256.Size]byte
}

// Canonical returns the bytes that the leaf hashes. The package documentation defines them.
func (e Event) Canonical() []byte {
	return fmt.Appendf(nil, "dray event v1\n%d\n%d\n%s\n%s\n%x\n", e.Seq, e.At, e.Kind, e.Invocation,
		e.BodySHA256)
}

// Leaf returns the RFC 6962 leaf hash of the event.
func (e Event) Leaf() tlog.Hash { return tlog.RecordHash(e.Canonical()) }
