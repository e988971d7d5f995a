package command

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The log of a daemon that runs in the background. A start moves it away once it is longer than maxLog, so that there are never more than two files.
const (
	logName     = "daemon.log"
	maxLog      = 4 << 20
	maxLogTail  = 8 << 10
	maxLogLines = 12
)

// daemonLog is the log from the moment of a start on.
type daemonLog struct {
	*os.File
	begin int64
}

// openLog opens the log for a daemon that is about to start.
func openLog(state string) (*daemonLog, error) {
	path := filepath.Join(state, logName)
	if info, err := os.Lstat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("moving the old log away: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the daemon's log: %w", err)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("reading the daemon's log: %w", err)
	}
	return &daemonLog{File: f, begin: end}, nil
}

// tail gives the last lines that were written since the start, harmless for a terminal.
func (l *daemonLog) tail() []string {
	b, _ := io.ReadAll(io.NewSectionReader(l.File, l.begin, maxLog))
	if len(b) > maxLogTail {
		b = b[len(b)-maxLogTail:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(b))
	for scanner.Scan() {
		lines = append(lines, escapeLine(scanner.Text()))
	}
	return lines[max(0, len(lines)-maxLogLines):]
}

// logError is a failed start with what the daemon said about it.
type logError struct {
	err   error
	lines []string
}

func (e logError) Error() string {
	if len(e.lines) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "\n  " + strings.Join(e.lines, "\n  ")
}

func (e logError) Unwrap() error { return e.err }
