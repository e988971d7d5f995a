package stage

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"syscall"

	"github.com/dray-dev/dray"
)

// A file of up to pieces*piece bytes is read as a whole before anything of it is written. Larger
// ones go through in pieces that fit the processor's cache, and are hashed while the next piece
// arrives.
const (
	pieceSize = 256 << 10
	pieces    = 4
)

// writeSmall takes a file that fits into memory. One that is there already is not written.
func (p *transaction) writeSmall(it *item, content io.Reader) error {
	b := p.content[:it.size]
	if _, err := io.ReadFull(content, b); err != nil {
		return truncatedError(it, err)
	}
	if err := expectEOF(it, content); err != nil {
		return err
	}
	it.sum = sha256.Sum256(b)
	if p.how.DryRun || it.found.unchanged(it) {
		return nil
	}
	fd, err := p.create(it)
	if err != nil {
		return err
	}
	return p.finish(it, fd, write(fd, b))
}

// writeLarge takes a file in pieces.
func (p *transaction) writeLarge(ctx context.Context, it *item, content io.Reader) error {
	if p.how.DryRun {
		return p.copyPieces(ctx, it, content, func([]byte) error { return nil })
	}
	fd, err := p.create(it)
	if err != nil {
		return err
	}
	return p.finish(it, fd, p.copyPieces(ctx, it, content,
		func(b []byte) error { return write(fd, b) }))
}

// copyPieces reads a file, hands it on and hashes it, the last beside the others.
func (p *transaction) copyPieces(ctx context.Context, it *item, content io.Reader,
	use func([]byte) error,
) error {
	free, full, sum := make(chan []byte, pieces), make(chan []byte, pieces), make(chan digest)
	for i := range pieces {
		free <- p.content[i*pieceSize : (i+1)*pieceSize]
	}
	go func() {
		h := sha256.New()
		for b := range full {
			_, _ = h.Write(b)
			free <- b[:pieceSize]
		}
		sum <- total(h)
	}()
	err := eachPiece(ctx, it, content, free, full, use)
	close(full)
	it.sum = <-sum
	return err
}

func eachPiece(ctx context.Context, it *item, content io.Reader, free <-chan []byte,
	full chan<- []byte, use func([]byte) error,
) error {
	for left := it.size; left > 0; {
		b := <-free
		b = b[:min(left, pieceSize)]
		if _, err := io.ReadFull(content, b); err != nil {
			return truncatedError(it, err)
		}
		full <- b
		if err := use(b); err != nil { // both only read it
			return err
		}
		if err := ended(ctx); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	return expectEOF(it, content)
}

// truncatedError is a content that ends before its size.
func truncatedError(it *item, err error) error {
	// io.ReadFull's own; one that is wrapped says more
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint
		return dray.Errorf(dray.CodeTransferFailed, "%q ended before its %d bytes", it.name, it.size)
	}
	return err
}

// expectEOF makes sure that a content ends with its size.
func expectEOF(it *item, content io.Reader) error {
	var one [1]byte
	n, err := io.ReadFull(content, one[:])
	switch {
	case n > 0:
		return dray.Errorf(dray.CodeTransferFailed, "%q goes on after its %d bytes", it.name, it.size)
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// create makes a file in the stage folder.
func (p *transaction) create(it *item) (int, error) {
	above, base := split(it.name)
	dir, err := p.stageFolder(above)
	if err != nil {
		return -1, err
	}
	fd, err := openat(dir, base, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, it.mode)
	if err != nil {
		return -1, opError("writing", it.name, err)
	}
	return fd, nil
}

// finish gives a file its mode and closes it; some file systems say only then that the disk is
// full.
func (p *transaction) finish(it *item, fd int, err error) error {
	if err == nil {
		err = syscall.Fchmod(fd, it.mode)
	}
	err = errors.Join(err, syscall.Close(fd))
	it.staged = err == nil
	return opError("writing", it.name, err)
}

func write(fd int, b []byte) error {
	for len(b) > 0 {
		var n int
		err := retryEINTR(func() (err error) {
			n, err = syscall.Write(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
