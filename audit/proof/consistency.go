package proof

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Consistency proves that a log only grew: the first events of the log at a checkpoint are those
// that it had when it was smaller.
type Consistency struct {
	// OldSize is the number of events that the log had.
	OldSize int64
	// Proof are the hashes of an RFC 6962 consistency proof.
	Proof tlog.TreeProof
	// Checkpoint is the later checkpoint, a signed note with one signature.
	Checkpoint []byte
}

// Encode returns the one encoding of a consistency proof, which is also the body of a request
// add-checkpoint of C2SP tlog-witness.
func (c Consistency) Encode() []byte {
	b := fmt.Appendf(nil, "old %d\n", c.OldSize)
	for _, h := range c.Proof {
		b = fmt.Appendf(b, "%s\n", h)
	}
	return append(append(b, '\n'), c.Checkpoint...)
}

// VerifyConsistency verifies a consistency proof from the checkpoint old: its encoding, the
// signatures of both checkpoints, and that the later log has all events of the earlier one. It
// returns both checkpoints.
func (v Verifier) VerifyConsistency(data, old []byte) (before, after Checkpoint, err error) {
	c, err := decodeConsistency(data)
	if err != nil {
		return before, after, err
	}
	if before, err = v.Open(old); err != nil {
		return before, after, fmt.Errorf("the earlier checkpoint: %w", err)
	}
	if after, err = v.openExact(c.Checkpoint); err != nil {
		return before, after, fmt.Errorf("the later checkpoint: %w", err)
	}
	if c.OldSize != before.Size {
		return before, after, fmt.Errorf("the proof begins at %d events, the earlier checkpoint has %d",
			c.OldSize, before.Size)
	}
	return before, after, CheckConsistency(c.Proof, before, after)
}

// CheckConsistency fails unless the proof shows that the log at after has all events that it had at
// before.
func CheckConsistency(p tlog.TreeProof, before, after Checkpoint) error {
	switch {
	case before.Size > after.Size:
		return fmt.Errorf("the log had %d events, and later only %d", before.Size, after.Size)
	case before.Size == 0: // package tlog has no proof from the empty log, which every log extends
		if len(p) == 0 && (after.Size > 0 || after.Root == before.Root) {
			return nil
		}
	case tlog.CheckTree(p, after.Size, after.Root, before.Size, before.Root) == nil:
		return nil
	}
	return fmt.Errorf("the later log does not have the first %d events in this form", before.Size)
}

func decodeConsistency(data []byte) (Consistency, error) {
	head, checkpoint, found := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	size, isProof := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseInt(size, 10, 64)
	if !found || !isProof || err != nil || old < 0 {
		return Consistency{}, errors.New("the file is not a consistency proof: its first line is not " +
			`"old" and a number of events`)
	}
	c := Consistency{OldSize: old, Checkpoint: checkpoint}
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return Consistency{}, fmt.Errorf("the file is not a consistency proof: %w", err)
		}
		c.Proof = append(c.Proof, hash)
	}
	if !bytes.Equal(c.Encode(), data) {
		return Consistency{}, errors.New("the proof is not in the encoding in which it was issued: " +
			"a byte was changed, added or removed")
	}
	return c, nil
}
