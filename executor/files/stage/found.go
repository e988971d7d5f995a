package stage

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"syscall"
)

type kind int

const (
	absent kind = iota
	regular
	directory
	other // a link, a device, a FIFO, a socket: replaced, never opened
)

type digest [sha256.Size]byte

// fileState is what lies at the end of a name.
type fileState struct {
	kind kind
	stat syscall.Stat_t
	sum  digest // of a regular file
}

// unchanged says that a file is what it would be replaced by. One that has another owner or another name elsewhere is not: its content could
// change behind that name.
func (f *fileState) unchanged(it *item) bool {
	return f.kind == regular && f.stat.Size == it.size && f.sum == it.sum && f.stat.Mode&0o7777 == it.mode &&
		f.stat.Nlink == 1 && int(f.stat.Uid) == syscall.Geteuid()
}

// sameAs says that a file was not touched between two looks.
func (f *fileState) sameAs(g *fileState) bool {
	a, b := &f.stat, &g.stat
	return f.kind == g.kind && a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mode == b.Mode && a.Nlink == b.Nlink && a.Uid == b.Uid &&
		a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// inspect says what lies at a name in a folder. The digest of a file is that of known if it is the same file, untouched; else it is read.
func (w resolver) inspect(ctx context.Context, dir int, base string, known *fileState, buf []byte) (fileState, error) {
	fd, err := w.open(dir, base, oPath)
	if errors.Is(err, syscall.ENOENT) {
		return fileState{}, nil
	}
	if err != nil {
		return fileState{}, err
	}
	defer func() { _ = syscall.Close(fd) }()
	var f fileState
	if err := syscall.Fstat(fd, &f.stat); err != nil {
		return fileState{}, err
	}
	switch f.stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		f.kind = regular
	case syscall.S_IFDIR:
		f.kind = directory
	default:
		f.kind = other
	}
	switch {
	case f.kind == regular && known != nil && f.sameAs(known):
		f.sum = known.sum
	case f.kind == regular:
		f.sum, err = sumOf(ctx, fd, buf)
	}
	return f, err
}

// sumOf reads the file that an O_PATH descriptor holds.
func sumOf(ctx context.Context, fd int, buf []byte) (sum digest, err error) {
	file, err := reopen(fd)
	if err != nil {
		return sum, err
	}
	defer func() { _ = syscall.Close(file) }()
	h := sha256.New()
	for {
		n, err := read(file, buf)
		if err != nil {
			return sum, err
		}
		if n == 0 {
			return total(h), nil
		}
		_, _ = h.Write(buf[:n])
		if err := ended(ctx); err != nil {
			return sum, err
		}
	}
}

func total(h hash.Hash) (sum digest) {
	h.Sum(sum[:0])
	return sum
}

func read(fd int, buf []byte) (n int, err error) {
	err = retryEINTR(func() error {
		n, err = syscall.Read(fd, buf)
		return err
	})
	return n, err
}
