package audit

import (
	"crypto/sha256"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// kind says what an event tells.
type kind string

const (
	begun       kind = "begun"
	ended       kind = "ended"
	interrupted kind = "interrupted"
)

// event is one row of the trail.
type event struct {
	seq        int64
	invocation string
	kind       kind
	at         int64 // nanoseconds since 1970 UTC
	body       []byte
}

// canonical gives the bytes that stand for the event in a Merkle log; the package's documentation describes them for others.
func (e event) canonical() []byte {
	return fmt.Appendf(nil, "dray event v1\n%d\n%d\n%s\n%s\n%x\n", e.seq, e.at, e.kind, e.invocation, sha256.Sum256(e.body))
}

// leaf is the RFC 6962 leaf hash of the event.
func (e event) leaf() tlog.Hash {
	return tlog.RecordHash(e.canonical())
}

// validID says whether s is a UUID in lower case: what may stand in a line of the canonical bytes.
func validID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash && c != '-' || !dash && !hex {
			return false
		}
	}
	return true
}
