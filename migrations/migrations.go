// Package migrations holds the schema of the audit trail as SQL files, one for each version, and
// nothing else.
//
// They go forward only, and each runs in one transaction together with the note that it ran. A file
// that was released is never edited: what comes later (a Merkle log, retention, full-text search)
// is a new file. Package audit runs them, and keeps a dump of the schema for each version.
package migrations

import "embed"

// FS holds the files, named NNNNN_name.sql.
//
//go:embed *.sql
var FS embed.FS
