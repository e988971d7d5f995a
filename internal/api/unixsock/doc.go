// Package unixsock listens on a unix socket of one user: with mode 0600 from its creation, with the
// uid of every peer from the kernel, and without replacing the socket of a running daemon.
package unixsock
