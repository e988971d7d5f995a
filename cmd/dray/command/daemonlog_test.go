package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogTailBeginsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), []byte("of the daemon before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if lines := l.tail(); len(lines) != 0 {
		t.Errorf("got %q", lines)
	}
	for i := range 500 {
		fmt.Fprintf(l, "line %d \x1b[31m %s\n", i, strings.Repeat("x", 50))
	}
	lines := l.tail()
	if len(lines) != maxLogLines || !strings.HasPrefix(lines[maxLogLines-1], `line 499 \x1b[31m`) {
		t.Errorf("got %d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func TestLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, logName)
	if err := os.WriteFile(path+".1", []byte("the oldest"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]int64{path: 0, path + ".1": maxLog + 1} {
		info, err := os.Stat(name)
		if err != nil || info.Size() != want {
			t.Errorf("%s: %v, %v; want %d bytes", name, info, err, want)
		}
	}
}
