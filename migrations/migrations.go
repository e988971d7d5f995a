// Package migrations contains the schema of the audit log as embedded SQL files, one for each
// version.
//
// Migrations only go forward. Each runs in one transaction together with the record that it ran. A
// released file is never edited: a change is a new file. Package audit runs the files and has a
// dump of the schema after each version.
package migrations

import "embed"

// FS contains the files, named NNNNN_name.sql.
//
//go:embed *.sql
var FS embed.FS
