package command

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal says whether a reader or writer of ours is a terminal. Anything that is no file is none.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columns is the width of the terminal, 80 where it does not say.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// callerStdin gives what a tool may read of our stdin, nil if that is nothing: where it is /dev/null, and where it is a terminal that belongs
// to another job, since reading it would stop us.
func callerStdin(in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	if !ok {
		return in
	}
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil // closed
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
		return nil
	}
	if isTerminal(f) {
		if owner, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && owner != unix.Getpgrp() {
			return nil
		}
	}
	return f
}
