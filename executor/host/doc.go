// Package host is the host as an environment: allow-listed folders, a built environment, processes
// under supervision.
//
// A tool on the host runs as the daemon's own user. What confines it is where it may work
// (host.roots), what it is told (never the daemon's variables) and that it can be ended with all it
// started; it is no sandbox, and says so.
package host
