// Package tool has the tools. A tool is a [dray.Tool]: data and a run function, which is composed
// once when the tool is registered.
//
// A [Registry] has the built-in tools and the command tools of the configuration. A duplicate name
// or an invalid schema prevents the start of the daemon.
//
//	exec {argv}                 the argv as it is, byte for byte
//	shell {command, shell?}     the command in a shell of the environment, /bin/sh by default
//	read_file, write_file, edit_file, list_dir, stat, glob, grep
//	                            the files beneath the workspace folder of the environment
//	sync {paths, ...}           copies files between the host and a container
//	command tools               a configured argv that reads its input on stdin: one JSON object
//
// # Schemas
//
// Inputs are JSON Schema 2020-12. They are checked in the caller's form before a call is accepted,
// so the result does not depend on where the call would run. Schemas must not refer to other
// documents.
//
// # Composition
//
// A run function is an Executor around an Executor. The outermost maps the input and the working
// directory into the environment's paths, and the output back into the caller's. Inside it the
// declared outputs are fetched. The innermost starts a process and parses its output, works on
// files, or syncs.
//
// # File tools
//
// A path is absolute or relative to the working directory of the call, and lies beneath the
// workspace folder. The errors are path_invalid for a path that does not exist, leads out of the
// workspace folder or has the wrong type, denied where the user that tools run as has no
// permission, invalid_input for an edit that does not match the file, conflict for a file that was
// changed meanwhile, limit_exceeded, and disk_full.
package tool
