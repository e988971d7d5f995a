package proof

import (
	"bytes"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// checkpointOf returns the signed checkpoint of the first events of a log.
func (l *testLog) checkpointOf(t *testing.T, size int64) []byte {
	t.Helper()
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := l.signer.Sign(size, root)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// consistency returns the proof that a log with size events extends that with old ones.
func (l *testLog) consistency(t *testing.T, old, size int64) []byte {
	t.Helper()
	c := Consistency{OldSize: old, Checkpoint: l.checkpointOf(t, size)}
	if old > 0 {
		var err error
		if c.Proof, err = tlog.ProveTree(size, old, l); err != nil {
			t.Fatal(err)
		}
	}
	return c.Encode()
}

// A consistency proof verifies for each pair of sizes, and from no other checkpoint (AU-06).
func TestConsistency(t *testing.T) {
	const last = 20
	l := newLog(t, last)
	for old := int64(0); old <= last; old++ {
		for size := old; size <= last; size++ {
			data := l.consistency(t, old, size)
			before, after, err := l.signer.Verifier().VerifyConsistency(data, l.checkpointOf(t, old))
			if err != nil || before.Size != old || after.Size != size {
				t.Errorf("%d to %d: %+v, %+v, %v", old, size, before, after, err)
			}
			other := l.checkpointOf(t, (old+1)%(last+1))
			if _, _, err := l.signer.Verifier().VerifyConsistency(data, other); err == nil {
				t.Errorf("%d to %d: accepted from another checkpoint", old, size)
			}
		}
	}
	data := l.consistency(t, 7, last)
	if _, _, err := newSigner(t).Verifier().VerifyConsistency(data, l.checkpointOf(t, 7)); err == nil {
		t.Error("accepted with another key")
	}
}

// A log with another history, signed with the same key, has no proof from a checkpoint of the old
// history (AU-06).
func TestConsistencyOfChangedHistory(t *testing.T) {
	const old, size = 7, 20
	l, changed := newLog(t, size), newLog(t, 0)
	changed.signer = l.signer
	for i, e := range l.events {
		if i == 3 {
			e.Kind = "interrupted"
		}
		hashes, err := tlog.StoredHashesForRecordHash(int64(i), e.Leaf(), changed)
		if err != nil {
			t.Fatal(err)
		}
		changed.hashes = append(changed.hashes, hashes...)
	}
	genuine, err := tlog.ProveTree(size, old, l)
	if err != nil {
		t.Fatal(err)
	}
	later := changed.checkpointOf(t, size)
	for name, data := range map[string][]byte{
		"its own proof":       changed.consistency(t, old, size),
		"the genuine proof":   Consistency{OldSize: old, Proof: genuine, Checkpoint: later}.Encode(),
		"from the empty log":  Consistency{Checkpoint: later}.Encode(),
		"a shorter log":       l.consistency(t, old-1, old-1),
		"no proof":            Consistency{OldSize: old, Checkpoint: later}.Encode(),
		"of the same size":    changed.consistency(t, old, old),
		"a negative old size": Consistency{OldSize: -old, Proof: genuine, Checkpoint: later}.Encode(),
	} {
		if _, _, err := l.signer.Verifier().VerifyConsistency(data, l.checkpointOf(t, old)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A consistency proof of which any byte was changed, removed or added fails (AU-06).
func TestConsistencyWithAlteredByteFails(t *testing.T) {
	l := newLog(t, 20)
	data, old := l.consistency(t, 7, 20), l.checkpointOf(t, 7)
	check := func(what string, i int, altered []byte) {
		t.Helper()
		if _, _, err := l.signer.Verifier().VerifyConsistency(altered, old); err == nil {
			t.Errorf("%s %d of %d: accepted", what, i, len(data))
		}
	}
	for i := range data {
		for bit := range 8 {
			altered := bytes.Clone(data)
			altered[i] ^= 1 << bit
			check("flipped byte", i, altered)
		}
		check("removed byte", i, append(bytes.Clone(data[:i]), data[i+1:]...))
		for _, added := range " 0\n" {
			check("byte before", i, append(append(bytes.Clone(data[:i]), byte(added)), data[i:]...))
		}
	}
	check("added byte", len(data), append(bytes.Clone(data), '\n'))
}
