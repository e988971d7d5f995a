// Package client speaks the daemon's HTTP interface over its unix socket, in types. The commands of
// the CLI are its users; it decides nothing for them: no exit codes, no text for a terminal.
//
// Every method takes a context that bounds the whole exchange, and returns a [dray.Error] with the
// daemon's own code, message and hint where the daemon refused. Where none answers on the socket
// the error is [ErrNoDaemon], and nothing was sent: it is safe to start one and repeat.
package client
