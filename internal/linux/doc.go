// Package linux wraps system calls that golang.org/x/sys/unix offers in a raw form: calls that a
// signal may interrupt, opening names without following symlinks, passing fds over unix sockets,
// pidfds, and the text formats of /proc. Each is here once.
//
// UntrustedDir reads files of directories with untrusted content.
//
// Functions take and return plain fds. Fds that they return are close-on-exec, and the caller
// closes them. Errors are bare unix.Errno values unless a function says otherwise.
//
// The agent links this package, so it imports golang.org/x/sys/unix and the standard library only.
package linux
