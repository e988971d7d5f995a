package command

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
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
	return int(sizeOf(w).Columns)
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
	if isTerminal(f) && !inForeground(f) {
		return nil
	}
	return f
}

// inForeground says whether a terminal is our job's. One that is not our controlling terminal is nobody's job's.
func inForeground(f *os.File) bool {
	owner, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || owner == unix.Getpgrp()
}

// makeRaw has a terminal pass every byte as it is, in both directions: what cfmakeraw(3) does. It gives the modes that were.
func makeRaw(f *os.File) (*unix.Termios, error) {
	modes, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *modes
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	return modes, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw)
}

// sizeOf gives the size of the first terminal among readers and writers of ours, 80x24 where none says it.
func sizeOf(candidates ...any) dray.TerminalSize {
	for _, v := range candidates {
		f, ok := v.(*os.File)
		if !ok {
			continue
		}
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
			return dray.TerminalSize{Columns: size.Col, Rows: size.Row}
		}
	}
	return dray.TerminalSize{Columns: 80, Rows: 24}
}
