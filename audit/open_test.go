package audit

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

var update = flag.Bool("update", false, "write the golden files")

// Only one store has the file, also under another name, and a refused Open does not disturb it
// (AU-04).
func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	opts := options(dir)
	s, _ := reopen(t, opts)
	link := filepath.Join(t.TempDir(), "other.db")
	if err := os.Symlink(opts.Path, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{opts.Path, link} {
		other := opts
		other.Path = path
		_, _, err := Open(context.Background(), other)
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeAuditUnavailable || !strings.Contains(e.Message, opts.Path) ||
			e.Hint == "" ||
			!strings.Contains(e.Message, fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("the second Open of %s returns %+v", path, e)
		}
	}
	run(t, s, newInvocation("exec"), exited(0))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s, found := reopen(t, opts); found != 0 || len(list(t, s, Query{}).Items) != 1 {
		t.Errorf("after Close of the first store: %d interrupted", found)
	}
}

// A newer schema is refused and left unchanged (AU-04).
func TestNewerSchemaIsRefused(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	db := rawDB(t, opts.Path)
	mustExec(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`)
	before := dumpSchema(t, db)
	_, _, err := Open(context.Background(), opts)
	e := dray.AsError(err)
	if e == nil || e.Code != dray.CodeAuditUnavailable || !strings.Contains(e.Message, "999") ||
		e.Hint == "" {
		t.Errorf("Open of a newer schema returns %+v", e)
	}
	if dumpSchema(t, db) != before {
		t.Error("the newer schema was changed")
	}
}

func TestOpenFailures(t *testing.T) {
	tests := map[string]func(t *testing.T, opts *Options){
		"no directory": func(_ *testing.T, opts *Options) {
			opts.Path = filepath.Join(filepath.Dir(opts.Path), "none", "audit.db")
		},
		"not a database": func(t *testing.T,
			opts *Options,
		) {
			writeFile(t, opts.Path, strings.Repeat("not a database ", 1000))
		},
		"captures is a file": func(t *testing.T, opts *Options) {
			writeFile(t, opts.CapturesDir, "")
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			opts := options(t.TempDir())
			prepare(t, &opts)
			_, _, err := Open(context.Background(), opts)
			if e := dray.AsError(err); e == nil || e.Code != dray.CodeAuditUnavailable ||
				!strings.Contains(e.Message, opts.Path) || e.Hint == "" {
				t.Errorf("Open returns %+v", e)
			}
		})
	}
}

// Open fails after the write timeout if calls must be marked as interrupted and the database is
// locked.
func TestOpenFails_DatabaseLocked(t *testing.T) {
	opts := impatient(t.TempDir())
	s, _ := reopen(t, opts)
	if _, err := s.begin(context.Background(), dray.Call{Invocation: newInvocation("exec")}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	unlock := lockDatabase(t, opts.Path)
	if _, _, err := Open(context.Background(), opts); codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("Open returns %v", err)
	}
	unlock()
	if _, found := reopen(t, opts); found != 1 {
		t.Errorf("%d interrupted, want 1", found)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Characters with a meaning in a URI are allowed in paths.
func TestPathWithSpecialCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?mode=memory#%41&ü")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, open(t, options(dir)), newInvocation("exec"), exited(0))
	if info, err := os.Stat(filepath.Join(dir, "audit.db")); err != nil || info.Size() == 0 {
		t.Errorf("the database: %v, %v", info, err)
	}
}

// Files are private regardless of the umask and of their earlier modes.
func TestFilesArePrivate(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		t.Run(fmt.Sprintf("umask %03o", mask), func(t *testing.T) {
			opts := options(t.TempDir())
			writeFile(t, opts.Path, "")
			if err := os.Chmod(opts.Path, 0o644); err != nil {
				t.Fatal(err)
			}
			defer unix.Umask(unix.Umask(mask))
			s := open(t, opts)
			inv := newInvocation("exec")
			inv.Input = longJSON(maxInline + 1)
			run(t, s, inv, exited(0))
			get(t, s, inv.ID)
			checkModes(t, filepath.Dir(opts.Path))
		})
	}
}

func checkModes(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = fs.ModeDir | 0o700
		}
		if err == nil && info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files++
		return err
	})
	// database, WAL, shm, lock, reserve, captures and the input, keys and the two files of the key
	if err != nil || files != 10 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestIncompleteCapturesAreRemoved(t *testing.T) {
	opts := options(t.TempDir())
	if err := os.Mkdir(opts.CapturesDir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(opts.CapturesDir, newPrefix+"1"), "half")
	writeFile(t, filepath.Join(opts.CapturesDir, "id.stdout"), "whole")
	open(t, opts)
	entries, err := os.ReadDir(opts.CapturesDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "id.stdout" {
		t.Errorf("the directory contains %v, %v", entries, err)
	}
}
