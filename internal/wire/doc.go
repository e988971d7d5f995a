// Package wire is what the daemon and the agent inside a container say to each other: frames that
// carry many streams over one connection, with flow control for each, and the messages in them.
//
// A frame is a header of ten bytes and a payload:
//
//	length uint32 | stream uint32 | type uint8 | channel uint8 | payload
//
// in little-endian order. Both sides first send a hello that names the protocols they speak
// (EX-21), as every version can read it; everything after it is streams. The daemon alone opens
// streams. A stream carries messages (internal/pack) and up to three channels of bytes: 0 is stdin,
// 1 stdout, 2 stderr. A sender of bytes may have at most [Window] of them on the way that the
// reader has not consumed; the reader grants more as it goes, so one slow reader stalls nobody
// else.
//
// The peer is hostile: every length is checked before anything is allocated, a sender that exceeds
// its window, a message that is too large or one too many, and a frame out of turn end the
// connection with [ErrProtocol]. Both sides ping; a silence longer than the lease ends the
// connection too.
//
// Standard library only, because the agent links it.
package wire
