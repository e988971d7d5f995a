// Package host is the host environment: allowed directories, a built environment, and supervised
// processes.
//
// A tool on the host runs as the daemon's user. It is restricted to directories beneath host.roots
// as working directories, it gets none of the daemon's variables, and it can be stopped with all its
// descendants. It is not sandboxed.
package host
