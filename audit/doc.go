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
// An idempotency key is a column of the call that has claimed it. The claim is committed with the
// begin record, and ends when retention removes the call.
//
// The table changed_files lists the files that dray itself changed for a call, with a file tool or
// a sync. It is written in the transaction of the end record. Lists of more than 10 files in the
// metadata of a record are stored in a file too; the event has their first entries and the number
// of the others. A sync to the host has an event of its own before it changes the first file, so
// that an interrupted call has its changed files too: those with the content of that event.
//
// Events beside calls have a Go type each, a [Body]: see [Kinds]. What belongs to a call is in its
// begin and end records, and not repeated.
//
// # Proof
//
// The column leaf is the RFC 6962 leaf hash of an event; package proof defines of which bytes. The
// leaves form a Merkle log (golang.org/x/mod/sumdb/tlog). The writer keeps its right edge in
// memory, so that a checkpoint has what was committed, also if another program changes the file.
// The table merkle_nodes has the hashes of complete subtrees, so that a proof reads few leaves.
//
// Checkpoints are signed when the store is opened and closed, at the latest 10 seconds after an
// event, and on request. The key, keys/audit.key, and the last 32 checkpoints, checkpoints/, are
// beside the database. Open makes the key of a new log. It fails if the key of an old log is
// missing, damaged or another one, and if the log does not extend its last checkpoint.
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
// Calls are refused while the disk has less free space than a reserve, and FILE.reserve occupies
// half of it. It is released when a commit finds no other space, so that the end records of the
// calls that run can be committed.
//
// With [Options.Degrade] a record that cannot be committed in time stays in the queue, in memory,
// and the call goes on.
//
// A lock on FILE.lock ensures that only one Store has the file open.
package audit
