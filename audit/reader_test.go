package audit

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"testing"
)

// readerChildPath makes the test binary read the log at this path in one transaction.
const readerChildPath = "DRAY_TEST_AUDIT_READER"

// readerChild holds a read transaction until stdin ends. It prints the last event before and after.
func readerChild(path string) {
	db, err := sql.Open("sqlite3", dsn(path, url.Values{"mode": {"ro"}}))
	if err != nil {
		panic(err)
	}
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	for range 2 {
		var last int64
		if err := tx.QueryRowContext(context.Background(), lastSeq).Scan(&last); err != nil {
			panic(err)
		}
		fmt.Println(last)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// While another program reads in one transaction, calls are recorded and it sees none of them. The
// write-ahead log grows meanwhile, is written again from its beginning when the reader has ended,
// and is removed when the log is closed (AU-08).
func TestReaderOfAnotherProgram(t *testing.T) {
	const calls = 500
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), readerChildPath+"="+opts.Path), os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := firstError(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("the reader does not begin")
	}
	before := lines.Text()
	small := size(t, opts.Path+"-wal")
	for range calls {
		recordCalls(t, s, 1)
	}
	large := size(t, opts.Path+"-wal")
	if large-small < calls*pageSize {
		t.Errorf("the write-ahead log has %d bytes, and had %d: the reader held nothing", large, small)
	}
	err := stdin.Close()
	if lines.Scan(); lines.Text() != before {
		t.Errorf("the reader saw event %s, and then %s", before, lines.Text())
	}
	if err := firstError(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	for range calls {
		recordCalls(t, s, 1)
	}
	// the first call appends once more; its commit moves everything to the database
	if now := size(t, opts.Path+"-wal"); now-large > calls*pageSize {
		t.Errorf("the write-ahead log has %d bytes without a reader, and had %d", now, large)
	}
	if events := openCheckpoint(t, s).Size; events < 2*2*calls {
		t.Errorf("the log has %d events", events)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(opts.Path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("the write-ahead log of a closed log: %v", err)
	}
}
