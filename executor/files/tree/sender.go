package tree

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/dray-dev/dray"
)

const (
	// sendBuffer is the size of one write: half of a large pipe, so that reader and writer work at the
	// same time.
	sendBuffer = 512 << 10
	// minPiece is the free space below which the buffer is written instead of filled with a small
	// piece.
	minPiece = 16 << 10
	// pieceHead is the size of a piece without its bytes, recordRoom the maximum size of any other
	// record.
	pieceHead  = 5
	recordRoom = MaxName + maxVersion + maxMessage + 64
)

// WriteError is returned by Send if the stream could not be written.
type WriteError struct{ cause error }

// Error returns the message of the writer's error.
func (e *WriteError) Error() string { return "write a tree: " + e.cause.Error() }

// Unwrap returns the writer's error.
func (e *WriteError) Unwrap() error { return e.cause }

// Send writes a tree to its end. If the tree fails, Send writes its code and message, so that the
// reader fails with the same code, and returns its error. It returns a *WriteError if the stream is
// truncated. It does not close the tree.
func Send(w io.Writer, t dray.Tree) error {
	s := &sender{w: w, buf: append(make([]byte, 0, sendBuffer), magic...)}
	err := s.entries(t)
	s.reserve()
	if err != nil {
		s.letter(recordAbort)
		s.writeReason(abortCodes, err)
	} else {
		s.letter(recordDone)
		s.number(s.count)
		s.number(s.bytes)
	}
	s.flush()
	if s.err != nil {
		return &WriteError{s.err}
	}
	return err
}

// sender buffers records. After a write error it does nothing.
type sender struct {
	w            io.Writer
	buf          []byte
	err          error // of w
	count, bytes uint64
}

func (s *sender) entries(t dray.Tree) error {
	for s.err == nil {
		entry, err := t.Next()
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is the end of something else, such as the agent
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.entry(t, entry); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) entry(t dray.Tree, e dray.TreeEntry) error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	s.count++
	s.reserve()
	switch {
	case e.Refused != nil:
		s.letter(recordRefused)
		s.text(e.Name)
		s.writeReason(entryCodes, e.Refused)
	case e.Type == typeDir:
		s.letter(recordDir)
		s.text(e.Name)
		s.number(uint64(e.Mode.Perm()))
	case e.Type == typeFile && e.Offset >= 0 && e.Size >= e.Offset && len(e.Version) <= maxVersion:
		s.letter(recordFile)
		s.text(e.Name)
		s.number(uint64(e.Mode.Perm()))
		s.text(e.Version)
		s.number(uint64(e.Size)) //nolint:gosec // not negative
		s.number(uint64(e.Offset))
		return s.content(t, e.Size-e.Offset)
	default:
		return dray.Errorf(dray.CodeInternal, "invalid entry %.200q: type %q, size %d, offset %d",
			e.Name, e.Type, e.Size, e.Offset)
	}
	return nil
}

// content writes a file. It reads the pieces directly into the buffer.
func (s *sender) content(t dray.Tree, length int64) error {
	for s.err == nil {
		if cap(s.buf)-len(s.buf) < minPiece {
			s.flush()
		}
		at := len(s.buf)
		piece := s.buf[at+pieceHead : min(at+pieceHead+MaxPiece, cap(s.buf))]
		n, err := t.Read(piece)
		if length -= int64(n); length < 0 {
			return dray.Errorf(dray.CodeInternal, "a file is longer than its size")
		}
		if n > 0 {
			s.buf = s.buf[:at+pieceHead+n]
			s.buf[at] = recordPiece
			binary.LittleEndian.PutUint32(s.buf[at+1:], uint32(n)) //nolint:gosec // at most MaxPiece
			s.bytes += uint64(n)
		}
		switch {
		case err == io.EOF && length > 0: //nolint:errorlint // never wrapped
			return dray.Errorf(dray.CodeTransferFailed, "a file ended %d bytes early: %w", length,
				io.ErrUnexpectedEOF)
		case err == io.EOF: //nolint:errorlint // never wrapped
			s.reserve()
			s.letter(recordEnd)
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// reserve ensures that the buffer has space for one more record.
func (s *sender) reserve() {
	if cap(s.buf)-len(s.buf) < recordRoom {
		s.flush()
	}
}

func (s *sender) flush() {
	if s.err == nil && len(s.buf) > 0 {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

func (s *sender) letter(l byte)   { s.buf = append(s.buf, l) }
func (s *sender) number(n uint64) { s.buf = binary.AppendUvarint(s.buf, n) }

func (s *sender) text(t string) {
	s.number(uint64(len(t)))
	s.buf = append(s.buf, t...)
}

// writeReason writes the code and the message of an error. The first code stands for all that are
// not in the list.
func (s *sender) writeReason(list []dray.Code, err error) {
	s.number(uint64(max(slices.Index(list, dray.CodeOf(err)), 0)))
	message := err.Error()
	s.text(message[:min(len(message), maxMessage)])
}
