package proof

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testLog is a log with n events of calls with two events each.
type testLog struct {
	signer *Signer
	events []Event
	bodies []string
	hashes []tlog.Hash // as tlog stores them
	edge   Edge
	nodes  []Node
}

func newLog(t *testing.T, n int) *testLog {
	t.Helper()
	l := &testLog{signer: newSigner(t)}
	for i := range n {
		body := fmt.Sprintf(`{"n":%d,"text":"a <b> & \"ü\""}`, i)
		e := Event{
			Seq: int64(i) + 1, At: 1789000000123456789, Kind: []string{"begun", "ended"}[i%2],
			Invocation: fmt.Sprintf("019a7b2c-0000-7000-8000-%012x", i/2),
			BodySHA256: sha256.Sum256([]byte(body)),
		}
		l.events, l.bodies = append(l.events, e), append(l.bodies, body)
		hashes, err := tlog.StoredHashesForRecordHash(int64(i), e.Leaf(), l)
		if err != nil {
			t.Fatal(err)
		}
		l.hashes = append(l.hashes, hashes...)
		l.nodes = append(l.nodes, l.edge.Append(e.Leaf())...)
	}
	return l
}

func (l *testLog) ReadHashes(indexes []int64) (found []tlog.Hash, err error) {
	for _, i := range indexes {
		found = append(found, l.hashes[i])
	}
	return found, nil
}

func newSigner(t *testing.T) *Signer {
	t.Helper()
	private, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(private + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The edge has the root hash that tlog computes from the whole log, for every size, and the same
// nodes (AU-06).
func TestEdgeEqualsTree(t *testing.T) {
	l := newLog(t, 600)
	var edge Edge
	for i, e := range l.events {
		edge.Append(e.Leaf())
		want, err := tlog.TreeHash(int64(i)+1, l)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadEdge(int64(i)+1, l)
		if err != nil || read.Root() != want || edge.Root() != want || read.Size() != edge.Size() {
			t.Fatalf("%d leaves: %v, read %v, %v, want %v", i+1, edge.Root(), read.Root(), err, want)
		}
	}
	if len(l.nodes) != 2 {
		t.Fatalf("nodes: %v", l.nodes)
	}
	for i, n := range l.nodes {
		if want := l.hashes[tlog.StoredHashIndex(TileHeight, int64(i))]; n != (Node{8, int64(i), want}) {
			t.Errorf("node %v, want %v", n, want)
		}
	}
	var empty Edge
	if got := empty.Root(); got != sha256.Sum256(nil) {
		t.Errorf("the root of the empty log is %v", got)
	}
}

// A checkpoint is accepted with its key only, and with signatures of witnesses added.
func TestCheckpoint(t *testing.T) {
	s, other := newSigner(t), newSigner(t)
	signed, err := s.Sign(7, tlog.Hash{1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Verifier().Open(signed)
	if err != nil || c.Size != 7 || c.Root != (tlog.Hash{1}) || c.Origin != s.note.Name() {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err := other.Verifier().Open(signed); err == nil {
		t.Errorf("accepted with another key: %+v", c)
	}
	n, err := note.Open(signed, note.VerifierList(s.verifier.note))
	if err != nil {
		t.Fatal(err)
	}
	witnessed, err := note.Sign(n, other.note)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Verifier().Open(witnessed); err != nil || again != c {
		t.Errorf("witnessed: %+v, %v", again, err)
	}
	for _, text := range []string{
		"", "x\n7\n" + c.Root.String() + "\n", c.Origin + "\n-1\n" + c.Root.String() + "\n",
		c.Origin + "\n07\n" + c.Root.String() + "\n", c.text() + "extension\n", c.Origin + "\n7\nAA==\n",
	} {
		signed, err := note.Sign(&note.Note{Text: cmp.Or(text, "\n")}, s.note)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Verifier().Open(signed); err == nil {
			t.Errorf("%q was accepted: %+v", text, c)
		}
	}
}

// receipt returns the receipt of the call of two events.
func (l *testLog) receipt(t *testing.T, first int, bodies bool) []byte {
	t.Helper()
	signed, err := l.signer.Sign(l.edge.Size(), l.edge.Root())
	if err != nil {
		t.Fatal(err)
	}
	var events []ReceiptEvent
	for i := first; i < first+2; i++ {
		inclusion, err := tlog.ProveRecord(l.edge.Size(), int64(i), l)
		if err != nil {
			t.Fatal(err)
		}
		e := NewReceiptEvent(l.events[i], inclusion)
		if bodies {
			e = e.WithBody([]byte(l.bodies[i]))
		}
		events = append(events, e)
	}
	data, err := NewReceipt(events, signed).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A receipt verifies with the public key alone, with bodies and without them (AU-06).
func TestReceipt(t *testing.T) {
	l := newLog(t, 300)
	for _, bodies := range []bool{true, false} {
		data := l.receipt(t, 254, bodies)
		key, err := NewVerifier(l.signer.Verifier().String())
		if err != nil {
			t.Fatal(err)
		}
		r, c, err := key.VerifyReceipt(data)
		if err != nil || c.Size != 300 || len(r.Events) != 2 || r.Events[0].Seq != 255 {
			t.Errorf("bodies %v: %+v, %v", bodies, c, err)
		}
		if _, _, err := newSigner(t).Verifier().VerifyReceipt(data); err == nil {
			t.Error("accepted with another key")
		}
		if strings.Contains(string(data), `\u003c`) {
			t.Error("HTML characters are escaped")
		}
	}
}

// A receipt of which any byte was changed, removed or added fails (AU-06).
func TestReceiptWithAlteredByteFails(t *testing.T) {
	l := newLog(t, 20)
	for _, bodies := range []bool{true, false} {
		data := l.receipt(t, 8, bodies)
		check := func(what string, i int, altered []byte) {
			t.Helper()
			if _, _, err := l.signer.Verifier().VerifyReceipt(altered); err == nil {
				t.Errorf("%s %d of %d: accepted", what, i, len(data))
			}
		}
		for i := range data {
			for _, mask := range []byte{0x01, 0x20} { // 0x20 changes the case of a letter
				altered := bytes.Clone(data)
				altered[i] ^= mask
				check("flipped byte", i, altered)
			}
			if bodies {
				check("removed byte", i, append(bytes.Clone(data[:i]), data[i+1:]...))
				check("space before byte", i, append(append(bytes.Clone(data[:i]), ' '), data[i:]...))
			}
		}
		check("added byte", len(data), append(bytes.Clone(data), '\n'))
	}
}

// Receipts that mean the same in another encoding, or combine events of two calls, are refused.
func TestReceiptsOfAnotherForm(t *testing.T) {
	l := newLog(t, 20)
	data := string(l.receipt(t, 8, false))
	replace := func(old, with string) string {
		if !strings.Contains(data, old) {
			t.Fatalf("the receipt has no %q", old)
		}
		return strings.Replace(data, old, with, 1)
	}
	for name, text := range map[string]string{
		"upper-case member": replace(`"seq"`, `"Seq"`),
		"unknown member":    replace(`"seq": 9,`, `"seq": 9, "x": 1,`),
		"duplicate member":  replace(`"seq": 9,`, `"seq": 9, "seq": 9,`),
		"escaped letter":    replace(`"kind": "begun"`, `"kind": "\u0062egun"`),
		"null":              "null\n",
		"no events":         `{"format":"dray receipt v1","events":[],"checkpoint":""}`,
		"two calls":         string(l.receipt(t, 9, false)),
	} {
		if _, _, err := l.signer.Verifier().VerifyReceipt([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A body that is not valid UTF-8 verifies too.
func TestReceiptOfInvalidUTF8(t *testing.T) {
	l := newLog(t, 0)
	body := []byte("{\"s\":\"\xff\"}")
	e := Event{Seq: 1, At: 1, Kind: "begun", Invocation: "i", BodySHA256: sha256.Sum256(body)}
	l.edge.Append(e.Leaf())
	signed, err := l.signer.Sign(1, l.edge.Root())
	if err != nil {
		t.Fatal(err)
	}
	data, err := NewReceipt([]ReceiptEvent{NewReceiptEvent(e, nil).WithBody(body)}, signed).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if r, _, err := l.signer.Verifier().VerifyReceipt(data); err != nil ||
		!bytes.Equal(r.Events[0].BodyBase64, body) {
		t.Error(err)
	}
}

func FuzzVerifyReceipt(f *testing.F) {
	f.Add([]byte(`{"format":"dray receipt v1","events":[{"seq":1,"proof":[]}],"checkpoint":"x\n\n— y AAAAAAA=\n"}`))
	key, err := NewVerifier("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := key.VerifyReceipt(data); err == nil {
			t.Error("a receipt without a valid signature was accepted")
		}
	})
}
