// Package client is a typed client of the daemon's HTTP interface on its unix socket, for the
// commands of the CLI.
//
// Every method takes a context that bounds the whole exchange. If the daemon refuses a request, the
// error is a [dray.Error] with the daemon's code, message and hint. If no daemon listens on the
// socket, the error is [ErrNoDaemon], and nothing was sent.
package client
