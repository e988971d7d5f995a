// Package proof has the formats by which the audit log can be checked without its database: events
// as leaves of a Merkle log, signed checkpoints of that log, consistency proofs between two
// checkpoints, and receipts of single calls. It reads no files.
//
// # Events
//
// The leaf of an event is the RFC 6962 leaf hash (tlog.RecordHash: SHA-256 over a zero byte and the
// data) of these bytes, six lines each ended by a line feed:
//
//	dray event v1
//	1                                                                   seq, decimal
//	1789000000123456789                                                 at, nanoseconds since 1970 UTC, decimal
//	begun                                                               kind
//	019a7b2c-0000-7000-8000-000000000001                                invocation, an empty line if none
//	44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a    SHA-256 of the body, lower-case hexadecimal
//
// (without the remarks on the right). Neither kind nor invocation can contain a line feed. The leaf
// of event n is record n-1 of the log, because logs count from 0. The body enters by its hash: a
// body can be deleted, or a proof given without it, and the rest of the event stays verifiable.
//
// # Checkpoints
//
// A checkpoint is a signed note (golang.org/x/mod/sumdb/note) in the form of C2SP tlog-checkpoint:
// the origin, the number of events, and the base64 root hash, each on a line of its own. The origin
// is also the name of the key, which is an Ed25519 key.
//
// # Consistency proofs
//
// A consistency proof is the body of a request add-checkpoint of C2SP tlog-witness: the line
// "old N", the hashes of the proof, an empty line, and a checkpoint. It has one encoding too.
//
// # Receipts
//
// A receipt is the JSON of [Receipt] in exactly one encoding, that of [Receipt.Encode]: members in
// the order of the Go types, indented by two spaces, HTML characters not escaped, a line feed at
// the end. Every byte counts: a receipt in another encoding is refused, also if it has the same
// meaning.
package proof
