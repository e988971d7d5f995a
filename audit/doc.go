// Package audit is the trail: an SQLite file in which every call has its begin before anything runs
// and its end before anybody is told of it.
//
// # Events and their projection
//
// The table events is the truth: append only, numbered from 1 without a gap, kept so by triggers.
// The table invocations is a projection of it, written in the same transaction; it holds what
// questions are asked of and leads to the bodies of the events, in which the rest of a call stands
// once. Its column metadata_container is the record's metadata.container as JSON. Inputs and
// outputs over 8 KiB lie in files beside the database, named by their SHA-256, written and synced
// before the row that names them. Values of environment variables are not stored, their names are.
//
// The files that dray itself changed for a call, with a file tool or a sync, stand in the table
// changed_files too, written in the transaction of the event that tells how the call ended, to be
// listed by plan and by path. Lists of files in a record's metadata that have more than 10 entries
// lie in such a file as well; the event has their beginning and how many more there are, which is
// what lists of calls show.
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
// (without the remarks on the right). Neither kind nor invocation can hold a line feed. The leaf of
// event n is record n-1 of a log, because logs count from 0. The body enters by its hash, so that a
// body can be deleted, or a proof be given without it, while all else about the event stays
// verifiable. The body is the exact text in the column.
//
// # What is promised when
//
// The file is in WAL mode with synchronous FULL. One goroutine writes: it commits for all who wait
// at once, and waits for nobody. Readers have their own read-only connections and never hold it up.
//
// A begin that cannot be committed within [Options.WriteTimeout] fails with audit_unavailable, and
// nothing runs. If its commit comes through later all the same (a disk that hung), the writer at
// once appends an end that says that nothing ran.
//
// An end that cannot be committed within that time fails the call with audit_unavailable too:
// nobody gets a result that is not in the trail. Unlike a begin it is not forgotten. It stays with
// the writer, which commits it, with the time at which the call really ended, as soon as the file
// can be written; until then [Store.Get] shows the call as running. If the daemon ends before that,
// the next [Open] finds the call without an end and makes it interrupted, as it does after a crash.
// There cannot be more such ends than calls that ran when the trouble began, because no new one
// begins meanwhile.
//
// Only one Store at a time has a file open: a lock on FILE.lock sees to it.
package audit
