// Package audit is the audit log: an SQLite file that has a begin record of each call before
// anything runs, and its end record before its result is returned.
//
// # Events and their projection
//
// The table events is the source of truth. It is append only and numbered from 1 without gaps;
// triggers enforce both. The table invocations is a projection of it, written in the same
// transaction: it has the columns that queries filter by and the numbers of the call's two events,
// whose bodies contain the rest. The column metadata_container is the record's metadata.container
// as JSON. Inputs and outputs over 8 KiB are files beside the database, named by their SHA-256,
// written and synced before the row that names them. The names of environment variables are
// stored, their values are not.
//
// The table changed_files lists the files that dray itself changed for a call, with a file tool or
// a sync. It is written in the transaction of the end record. Lists of more than 10 files in the
// metadata of a record are stored in a file too; the event has their first entries and the number
// of the others.
//
// # The bytes of an event
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
// of event n is record n-1 of a log, because logs count from 0. The body enters by its hash: a body
// can be deleted, or a proof given without it, and the rest of the event stays verifiable. The body
// is the exact text of the column.
//
// # Guarantees
//
// The file is in WAL mode with synchronous FULL. One goroutine commits, all pending events in one
// transaction; calls wait for it. Readers have their own read-only connections and never block it.
//
// A begin record that is not committed within [Options.WriteTimeout], because the database is
// locked or full or the disk does not respond, fails with audit_unavailable, and nothing runs. If
// its commit succeeds later, the writer appends an end record that says that nothing ran. The
// timeout does not bound the sync of a file in captures/, which inputs and outputs over 8 KiB need
// before.
//
// An end record that is not committed within that time also fails the call with audit_unavailable,
// so that no result is returned that is not in the audit log. The record stays queued and is
// committed, with the time at which the call ended, as soon as the file is writable. Until then
// [Store.Get] returns the call as running. If the daemon exits before that, the next [Open] marks
// the call as interrupted, as after a crash. The number of queued end records is bounded by the
// number of calls that ran when the writes began to fail.
//
// A lock on FILE.lock ensures that only one Store has the file open.
package audit
