// Package command implements the dray program: one file for each group of commands, and the wiring
// of the daemon in daemon.go.
//
// # Output
//
// stdout carries the result of a command and nothing else; messages go to stderr. With --json
// stdout carries exactly one JSON value. `dray exec` and `dray call` pass a tool's bytes through
// unchanged. All other text from a tool, a container or a configuration is escaped with escapeLine
// or escapeText, so that a terminal never receives their control codes.
//
// # Errors
//
// Commands return errors and do not print them. Execute prints an error once, with its hint, and
// maps it to an exit code with the tables of exit.go.
//
// # The daemon
//
// Commands use the daemon of the state directory, and start it if it is not running (autostart.go).
// A daemon started this way exits after ten idle minutes.
package command
