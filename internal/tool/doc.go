// Package tool holds the tools: what they are called, what goes in and comes out, and what a call
// of one starts.
//
// A [Registry] is made once at the start and never changes. It has the built-in tools and the
// command tools that the configuration declares; two tools of one name, or a schema that is not
// one, stop the start.
//
//	exec {argv}                 the argv as it is, byte for byte
//	shell {command, shell?}     the command through a shell of the environment, /bin/sh unless told
//	read_file, write_file, edit_file, list_dir, stat, glob, grep
//	                            on the environment's own files, beneath its workspace folder
//	command tools               a configured argv that gets the input on stdin: one JSON object, then end of file
//
// # Schemas
//
// Inputs are JSON Schema 2020-12 and are checked before a call is accepted ([Tool.CheckInput]), in
// the caller's own form, so the answer is the same wherever the call would run. Schemas refer to
// nothing outside themselves.
//
// # The two executors
//
// [Mapping] turns the call's paths into the environment's and the output's back; [Runner] is the
// innermost executor, which starts a process or touches a file. Between them everything is in the
// environment's own paths; above them everything is the caller's.
//
// # File tools
//
// A path is relative to the call's working folder or absolute, and lies in the environment's
// workspace folder. What cannot be done ends with these codes: path_invalid for a path that does
// not exist, leads out of the workspace folder or names the wrong kind of file; denied where the
// user that tools run as may not; invalid_input for an edit that does not fit the file; conflict
// for a file that somebody else changed meanwhile; limit_exceeded; disk_full.
package tool
