package python

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/dray-dev/dray"
)

// kind is the type byte of a frame.
type kind byte

// Kinds of frames to the worker. An upper-case kind is the last frame of a body.
const (
	kindRequest    kind = 'q'
	kindRequestEnd kind = 'Q'
	kindStdin      kind = 'i'
	kindStdinEnd   kind = 'I'
	kindInterrupt  kind = 'x'
	kindStop       kind = 'X'
	kindFiles      kind = 'f'
	kindFilesEnd   kind = 'F'
	kindResult     kind = 'b'
	kindResultEnd  kind = 'B'
)

// Kinds of frames from the worker.
const (
	kindHello      kind = 'H'
	kindStdout     kind = 'o'
	kindStderr     kind = 'e'
	kindCall       kind = 'c'
	kindCallEnd    kind = 'C'
	kindChanged    kind = 't'
	kindChangedEnd kind = 'T'
	kindReply      kind = 'r'
	kindReplyEnd   kind = 'R'
	kindCPULimit   kind = 'L' // as kindReplyEnd
)

const (
	// maxBody bounds the body of one frame in bytes.
	maxBody = 1 << 20
	// lengthSize is the size of the length; fixedSize is that of the fields that it counts.
	lengthSize = 4
	fixedSize  = 13
	headerSize = lengthSize + fixedSize
)

// header is the head of a frame. body is the number of bytes that follow it.
type header struct {
	body       int
	kind       kind
	generation uint32
	request    uint32
	sequence   uint32
}

func (h header) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(fixedSize+h.body)) //nolint:gosec // at most maxBody
	b = append(b, byte(h.kind))
	b = binary.BigEndian.AppendUint32(b, h.generation)
	b = binary.BigEndian.AppendUint32(b, h.request)
	return binary.BigEndian.AppendUint32(b, h.sequence)
}

// frameReader reads frames of one generation, in sequence. It allocates nothing for a frame: the
// caller reads the body from it.
type frameReader struct {
	r          *bufio.Reader
	generation uint32
	sequence   uint32
}

func newFrameReader(r io.Reader, generation uint32) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 32<<10), generation: generation}
}

// next reads a header. It fails with io.EOF or io.ErrUnexpectedEOF if the worker has ended, and
// with a protocol error if the header is invalid.
func (f *frameReader) next() (header, error) {
	b, err := f.r.Peek(headerSize)
	if err != nil {
		if len(b) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return header{}, err
	}
	length := binary.BigEndian.Uint32(b)
	if length < fixedSize || length > fixedSize+maxBody {
		return header{}, protocolError("a frame has the length %d", length)
	}
	h := header{
		body: int(length) - fixedSize, kind: kind(b[lengthSize]),
		generation: binary.BigEndian.Uint32(b[lengthSize+1:]),
		request:    binary.BigEndian.Uint32(b[lengthSize+5:]),
		sequence:   binary.BigEndian.Uint32(b[lengthSize+9:]),
	}
	if _, err := f.r.Discard(headerSize); err != nil {
		return header{}, err
	}
	return h, f.check(h)
}

// check compares the header with the generation and the sequence that are expected.
func (f *frameReader) check(h header) error {
	switch {
	case h.generation != f.generation:
		return protocolError("a frame has the generation %d, not %d", h.generation, f.generation)
	case h.sequence != f.sequence:
		return protocolError("a frame has the sequence %d, not %d", h.sequence, f.sequence)
	case h.body == 0 && !h.kind.mayBeEmpty():
		return protocolError("a frame of type %q has no body", byte(h.kind))
	}
	f.sequence++
	return nil
}

// mayBeEmpty reports whether a frame may have no body, because it ends the body of several frames.
func (k kind) mayBeEmpty() bool {
	return k == kindChangedEnd || k == kindCallEnd || k == kindReplyEnd || k == kindCPULimit
}

// wait blocks until there is a byte to read.
func (f *frameReader) wait() error {
	_, err := f.r.Peek(1)
	return err
}

// read appends n bytes to b. Memory grows with what arrives, not with n.
func (f *frameReader) read(b []byte, n int) ([]byte, error) {
	err := f.chunks(n, func(p []byte) { b = append(b, p...) })
	return b, err
}

// copyTo writes n bytes to w. If w fails, they are read and dropped.
func (f *frameReader) copyTo(w io.Writer, n int) error {
	var failed error
	return f.chunks(n, func(p []byte) {
		if failed == nil {
			_, failed = w.Write(p)
		}
	})
}

// chunks passes n bytes to use as they arrive. The slice is valid until use returns.
func (f *frameReader) chunks(n int, use func(p []byte)) error {
	for n > 0 {
		if err := f.wait(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		p, _ := f.r.Peek(min(n, f.r.Buffered())) // they are in the buffer
		use(p)
		n -= len(p)
		_, _ = f.r.Discard(len(p)) // the same bytes
	}
	return nil
}

// protocolError returns the error of a worker that violated the protocol. The text is the
// violation.
func protocolError(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeAgentLost,
		"the Python worker violated its protocol and was killed: "+format, args...).
		WithHint("%s", lostHint)
}

const lostHint = "the next call starts a new session; code must not write to descriptors that it " +
	"did not open"
