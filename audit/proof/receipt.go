package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"
)

// receiptFormat is the first member of a receipt.
const receiptFormat = "dray receipt v1"

// Receipt proves that a log contains the events of one call. Each event has its body, or only the
// SHA-256 of it.
type Receipt struct {
	Format string         `json:"format"`
	Events []ReceiptEvent `json:"events"`
	// Checkpoint is a signed note with one signature.
	Checkpoint string `json:"checkpoint"`
}

// ReceiptEvent is an event with the proof that the log of the checkpoint includes it. Exactly one
// of the body members is set: Body, BodyBase64 if the body is not valid UTF-8, or BodySHA256.
type ReceiptEvent struct {
	Seq        int64   `json:"seq"`
	At         int64   `json:"at"`
	Kind       string  `json:"kind"`
	Invocation string  `json:"invocation"`
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
	BodySHA256 string  `json:"body_sha256,omitempty"`
	// Proof are the hashes of an RFC 6962 inclusion proof.
	Proof tlog.RecordProof `json:"proof"`
}

// NewReceiptEvent returns an event without its body.
func NewReceiptEvent(e Event, inclusion tlog.RecordProof) ReceiptEvent {
	return ReceiptEvent{
		Seq: e.Seq, At: e.At, Kind: e.Kind, Invocation: e.Invocation,
		BodySHA256: hex.EncodeToString(e.BodySHA256[:]), Proof: inclusion,
	}
}

// WithBody returns the event with its body.
func (e ReceiptEvent) WithBody(body []byte) ReceiptEvent {
	e.BodySHA256 = ""
	if utf8.Valid(body) {
		text := string(body)
		e.Body = &text
	} else {
		e.BodyBase64 = body
	}
	return e
}

// event returns the event as its leaf has it.
func (e ReceiptEvent) event() (Event, error) {
	ev := Event{Seq: e.Seq, At: e.At, Kind: e.Kind, Invocation: e.Invocation}
	switch {
	case e.Body != nil && e.BodyBase64 == nil && e.BodySHA256 == "":
		ev.BodySHA256 = sha256.Sum256([]byte(*e.Body))
	case e.Body == nil && e.BodyBase64 != nil && e.BodySHA256 == "":
		ev.BodySHA256 = sha256.Sum256(e.BodyBase64)
	case e.Body == nil && e.BodyBase64 == nil && len(e.BodySHA256) == hex.EncodedLen(sha256.Size):
		if _, err := hex.Decode(ev.BodySHA256[:], []byte(e.BodySHA256)); err != nil {
			return Event{}, fmt.Errorf("body_sha256 is not a SHA-256: %w", err)
		}
		if hex.EncodeToString(ev.BodySHA256[:]) != e.BodySHA256 {
			return Event{}, errors.New("body_sha256 is not in lower case")
		}
	default:
		return Event{}, errors.New("it needs one of body, body_base64 and body_sha256")
	}
	return ev, nil
}

// NewReceipt returns the receipt of events by a signed checkpoint.
func NewReceipt(events []ReceiptEvent, checkpoint []byte) Receipt {
	return Receipt{Format: receiptFormat, Events: events, Checkpoint: string(checkpoint)}
}

// Encode returns the one encoding of a receipt.
func (r Receipt) Encode() ([]byte, error) {
	for i := range r.Events {
		if r.Events[i].Proof == nil {
			r.Events[i].Proof = tlog.RecordProof{} // [], not null
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encode the receipt: %w", err)
	}
	return b.Bytes(), nil
}

// VerifyReceipt verifies a receipt: its encoding, the signature of its checkpoint, and that the log
// of the checkpoint includes each event. It does not prove that the call has no other events.
func (v Verifier) VerifyReceipt(data []byte) (Receipt, Checkpoint, error) {
	r, err := decodeReceipt(data)
	if err != nil {
		return Receipt{}, Checkpoint{}, err
	}
	c, err := v.openExact([]byte(r.Checkpoint))
	if err != nil {
		return Receipt{}, Checkpoint{}, err
	}
	for i, e := range r.Events {
		if err := e.verify(c); err != nil {
			return Receipt{}, Checkpoint{}, fmt.Errorf("event %d: %w", e.Seq, err)
		}
		if i > 0 && (e.Seq <= r.Events[i-1].Seq || e.Invocation != r.Events[0].Invocation) {
			return Receipt{}, Checkpoint{}, errors.New("the events are not those of one call in order")
		}
	}
	return r, c, nil
}

func decodeReceipt(data []byte) (Receipt, error) {
	var r Receipt
	if err := json.Unmarshal(data, &r); err != nil {
		return Receipt{}, fmt.Errorf("the file is not a receipt: %w", err)
	}
	if r.Format != receiptFormat {
		return Receipt{}, fmt.Errorf("the file is not a receipt: its format is %q, not %q", r.Format,
			receiptFormat)
	}
	if len(r.Events) == 0 {
		return Receipt{}, errors.New("the receipt has no events")
	}
	if again, err := r.Encode(); err != nil || !bytes.Equal(again, data) {
		return Receipt{}, errors.New("the receipt is not in the encoding in which it was issued: " +
			"a byte was changed, added or removed")
	}
	return r, nil
}

func (e ReceiptEvent) verify(c Checkpoint) error {
	ev, err := e.event()
	if err != nil {
		return err
	}
	if e.Seq < 1 || e.Seq > c.Size {
		return fmt.Errorf("the checkpoint has only %d events", c.Size)
	}
	if tlog.CheckRecord(e.Proof, c.Size, c.Root, e.Seq-1, ev.Leaf()) != nil {
		return errors.New("the log of the checkpoint does not include it in this form")
	}
	return nil
}
