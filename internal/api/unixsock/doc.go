// Package unixsock listens on a unix socket that belongs to one user: mode 0600 from its first
// moment, every peer's uid asked from the kernel, and never taken away from a daemon that still
// answers.
package unixsock
