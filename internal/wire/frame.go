package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

type frameType uint8

const (
	frameHello frameType = iota + 1
	framePing
	framePong
	frameOpen    // the first message of a new stream
	frameMessage // a further one
	frameData
	frameEOF          // no more data on this channel
	frameWindowUpdate // the reader has consumed this many bytes
	frameStopSending  // the reader does not read this channel any more
	frameClose        // the sender has closed the stream
	frameOpenWithFDs  // frameOpen with descriptors, on a socket
)

// Sizes, in bytes.
const (
	headerSize = 10
	// MaxData is the largest payload of one data frame.
	MaxData = 64 << 10
	// Window is the number of bytes of one channel that may be in transit unread.
	Window = 256 << 10
	// MaxMessage is the largest message that an agent accepts: more than the largest argv and
	// environment of Linux.
	MaxMessage = 8 << 20
	// MaxStreams is the highest number of open streams of one connection.
	MaxStreams = 4096
	// channels is the number of channels of a stream.
	channels = 3
)

// ErrProtocol is returned if the peer violates the protocol. The connection has ended.
var ErrProtocol = errors.New("the peer violated the wire protocol")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

type header struct {
	length  uint32
	stream  uint32
	typ     frameType
	channel uint8
}

func (h header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.length)
	b = binary.LittleEndian.AppendUint32(b, h.stream)
	return append(b, byte(h.typ), h.channel)
}

// readHeader reads a header and checks what does not depend on the streams.
func readHeader(r io.Reader, maxMessage int) (header, error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return header{}, err
	}
	h := header{
		length: binary.LittleEndian.Uint32(b[0:]), stream: binary.LittleEndian.Uint32(b[4:]),
		typ: frameType(b[8]), channel: b[9],
	}
	return h, h.check(maxMessage)
}

func (h header) check(maxMessage int) error {
	limit := uint32(0)
	switch h.typ {
	case frameHello, frameOpen, frameOpenWithFDs, frameMessage:
		limit = uint32(maxMessage) //nolint:gosec // a constant
	case frameData:
		limit = MaxData
	case frameWindowUpdate:
		limit = 4
	case framePing, framePong, frameEOF, frameStopSending, frameClose:
	default:
		return protocolError("frame type %d", h.typ)
	}
	if h.length > limit {
		return protocolError("frame type %d with %d bytes (limit %d)", h.typ, h.length, limit)
	}
	if h.channel >= channels {
		return protocolError("channel %d", h.channel)
	}
	return nil
}
