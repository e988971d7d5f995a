package capture

import (
	"errors"
	"io"
	"os"
)

// reader reads a capture that may still grow. Its end is what is kept at that moment; reading on later gives more.
type reader struct {
	capture *Capture
	at      int64
	file    *os.File // nil until the capture has one and something of it is wanted
}

// Read gives what is kept behind the last byte that was read.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.inMemory(p)
	if errors.Is(err, errSpilled) {
		n, err = r.inFile(p)
	}
	r.at += int64(n)
	return n, err
}

var errSpilled = errors.New("it is in a file")

func (r *reader) inMemory(p []byte) (int, error) {
	c := r.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.at >= c.kept:
		return 0, io.EOF
	case c.memory == nil:
		return 0, errSpilled
	default:
		return copy(p, c.memory[r.at:]), nil
	}
}

// inFile reads what was written. The file is not locked meanwhile: it only grows.
func (r *reader) inFile(p []byte) (int, error) {
	if r.file == nil {
		f, err := os.Open(r.capture.path())
		if err != nil {
			return 0, err
		}
		r.file = f
	}
	n, err := r.file.ReadAt(p, r.at)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Seek sets where the next Read begins. The end is that of now.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		r.capture.mu.Lock()
		offset += r.capture.kept
		r.capture.mu.Unlock()
	}
	if offset < 0 {
		return 0, errors.New("seeking before the beginning of a capture")
	}
	r.at = offset
	return offset, nil
}

// Close ends the reading.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
