// Package command is the dray program: one file for each command, and the only place that wires the
// packages to a daemon.
//
// # Output
//
// stdout carries what a command was asked for, and nothing else; everything that is said about it
// goes to stderr. With --json stdout carries exactly one JSON value. `dray exec` and `dray call`
// pass a tool's bytes through as they are; everywhere else text that may come from a tool, a
// container or a configuration passes through the functions of safe.go, so that no terminal sees a
// control code of theirs.
//
// # Errors
//
// Commands return errors and print none. Execute prints an error once, as one line and a hint, and
// turns it into an exit code by the tables of exit.go.
//
// # The daemon
//
// Commands that need it talk to the daemon of the state folder, and start one where none answers
// (start.go). It ends by itself when it has had nothing to do for ten minutes.
package command
