// Package wire is the protocol between the daemon and the agent in a container: frames that
// multiplex streams over one connection, with flow control for each, and the messages in them.
//
// A frame is a header of ten bytes and a payload, in little-endian order:
//
//	length uint32 | stream uint32 | type uint8 | channel uint8 | payload
//
// Both sides first send a hello with the protocols that they support, in a form that every version
// can read (EX-21). All frames after it belong to streams, which only the daemon opens. A stream
// carries messages (internal/pack) and up to three channels of bytes: 0 is stdin, 1 stdout,
// 2 stderr. A sender of bytes may have at most [Window] of them in transit that the reader has not
// consumed. The reader sends window updates, so a slow reader does not block other streams.
//
// The peer is hostile: every length is checked before memory is allocated. A sender that exceeds
// its window, a message that is too large or one too many, and an unexpected frame end the
// connection with [ErrProtocol]. Both sides ping, and end the connection after a lease without a
// frame.
//
// The agent links this package.
package wire
