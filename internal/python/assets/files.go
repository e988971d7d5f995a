package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is what a hashed file is compared by.
type identity struct {
	dev, ino     uint64
	mode         uint32
	size         int64
	uid          uint32
	mtime, ctime unix.Timespec
}

// identify returns the identity of a file that must not be a link.
func identify(name string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return identity{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return identityOf(&st), nil
}

func identityOf(st *unix.Stat_t) identity {
	return identity{
		dev: st.Dev, ino: st.Ino, mode: st.Mode, size: st.Size, uid: st.Uid,
		mtime: st.Mtim, ctime: st.Ctim,
	}
}

func identifyOpen(f *os.File) (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return identityOf(&st), err
}

// private refuses a file or folder that another user may change.
func private(name string, id identity) error {
	euid := os.Geteuid()
	switch {
	case id.uid != 0 && int(id.uid) != euid:
		return &Problem{
			Kind: Unsafe, File: name, Got: "belongs to uid " + strconv.Itoa(int(id.uid)),
			Fix: fmt.Sprintf("give it to uid %d or to root", euid),
		}
	case id.mode&0o022 != 0:
		return &Problem{
			Kind: Unsafe, File: name, Got: fmt.Sprintf("has mode %04o, so others may change it",
				id.mode&0o7777), Fix: "run: chmod go-w " + name,
		}
	default:
		return nil
	}
}

// parentsOf returns the folders that a path leads through.
func parentsOf(name string) []string {
	var all []string
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		all = append(all, dir)
		if dir == filepath.Dir(dir) {
			return all
		}
	}
}

// checkParents refuses folders in which everybody may rename entries: writable for all, and without
// the sticky bit.
func checkParents(dirs []string) error {
	for _, dir := range dirs {
		id, err := identify(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if id.mode&0o002 != 0 && id.mode&unix.S_ISVTX == 0 {
			return &Problem{
				Kind: Unsafe, File: dir,
				Got: fmt.Sprintf("has mode %04o, so everybody may exchange what is in it", id.mode&0o7777),
				Fix: "run: chmod o-w " + dir,
			}
		}
	}
	return nil
}

// FileOf returns the file of a name and content.
func FileOf(name string, data []byte) File {
	sum := sha256.Sum256(data)
	return File{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

func readSmall(name string) ([]byte, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxLock+1))
	if err == nil && len(data) > maxLock {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxLock)
	}
	return data, err
}

// openRegular opens a file that is no link, folder, pipe or device.
func openRegular(name string) (*os.File, error) { return open(name, syscall.O_NOFOLLOW) }

// openSource opens a file to copy. It may be a link, because its content is checked.
func openSource(name string) (*os.File, error) { return open(name, 0) }

func open(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|flags, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &Problem{Kind: Unsafe, File: name, Got: "is a symlink"}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Problem{Kind: Unsafe, File: name, Got: "is not a regular file"}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// names returns the names in a folder.
func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, err := f.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(all) > maxEntries {
		return nil, fmt.Errorf("%s has more than %d entries", dir, maxEntries)
	}
	slices.Sort(all)
	return all, nil
}

// digestOf hashes size bytes.
func digestOf(ctx context.Context, r io.Reader, size int64) (string, error) {
	h := sha256.New()
	if err := copyTo(ctx, h, io.LimitReader(r, size)); err != nil {
		return "", err
	}
	return hexOf(h), nil
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// copyTo copies until the end of r or of ctx.
func copyTo(ctx context.Context, w io.Writer, r io.Reader) error {
	buf := make([]byte, 1<<20)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
