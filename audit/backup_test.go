package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func backupOptions(opts Options, dir string) BackupOptions {
	return BackupOptions{Path: opts.Path, CapturesDir: opts.CapturesDir, Dir: dir}
}

// loaded makes calls with files until the returned function is called, which returns their ids.
func loaded(t *testing.T, s *Store) (stop func() []string) {
	t.Helper()
	done := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for caller := range 4 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				inv := newInvocation("exec")
				inv.Input = longJSON(maxInline + 1 + 4*n + caller)
				run(t, s, inv, synced(2))
				mu.Lock()
				ids = append(ids, inv.ID)
				mu.Unlock()
			}
		})
	}
	return sync.OnceValue(func() []string {
		close(done)
		callers.Wait()
		return ids
	})
}

// A backup that is made under load opens as a state directory. All calls up to its moment read back
// with their files, and it verifies (AU-03, AU-04, AU-06).
func TestBackupUnderLoad(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	stop := loaded(t, s)
	defer stop()
	before := newInvocation("exec")
	before.Input = longJSON(maxInline + 7)
	run(t, s, before, exited(3))
	output := filepath.Join(opts.CapturesDir, before.ID+".stdout")
	writeFile(t, output, "captured")
	generate1000(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	var steps []string
	backupOpts := backupOptions(opts, dir)
	backupOpts.Progress = func(what string, done, total int64) {
		if done > total {
			t.Errorf("%s: %d of %d", what, done, total)
		}
		steps = append(steps, what)
	}
	manifest, err := Backup(t.Context(), backupOpts)
	must(t, err)
	ids := stop()
	if !slices.Contains(steps, "captures") || manifest.Events == 0 {
		t.Errorf("%d events, steps %q", manifest.Events, slices.Compact(steps))
	}
	checkManifest(t, dir)
	if _, err := os.Stat(filepath.Join(dir, "keys", "audit.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private key is in the backup: %v", err)
	}

	restored := options(dir)
	checkNoFindings(t, mustVerify(t, restored, nil))
	if _, _, err := Open(t.Context(), restored); codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("Open without the key returns %v", err)
	}
	key, err := os.ReadFile(filesOf(opts.Path).key)
	must(t, err)
	writeFile(t, filesOf(restored.Path).key, string(key))
	r, _ := reopen(t, restored)
	found := 0
	for _, id := range append(ids, before.ID) {
		rec, err := r.Get(t.Context(), "", id)
		if codeOf(err) == dray.CodeNotFound {
			continue // it began later
		}
		found++
		if rec.Reason != dray.ReasonInterrupted && !sameRecord(rec, get(t, s, id)) || err != nil {
			t.Errorf("%s reads back as %+v, %v", id, rec, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "captures", filepath.Base(output))); err != nil ||
		string(got) != "captured" || found < 2 {
		t.Errorf("of %d calls %d are in the backup; output %q, %v", len(ids), found, got, err)
	}
	run(t, r, newInvocation("exec"), exited(0)) // the restored log goes on
	checkLog(t, r)
}

// generate1000 makes calls until there are some pages to copy.
func generate1000(t *testing.T, s *Store) {
	t.Helper()
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for range 20 {
				run(t, s, newInvocation("exec"), exited(0))
			}
		})
	}
	callers.Wait()
}

// checkManifest checks that the manifest of a backup lists all files with their hashes, and that
// only their owner can read them.
func checkManifest(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ManifestName))
	var manifest Manifest
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	must(t, err)
	listed := map[string]string{}
	for _, f := range manifest.Files {
		listed[f.Path] = f.SHA256
	}
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || e.IsDir() || name == ManifestName {
			return err
		}
		content, err := os.ReadFile(path)
		sum := sha256.Sum256(content)
		if listed[filepath.ToSlash(name)] != hex.EncodeToString(sum[:]) {
			t.Errorf("the manifest has %q for %s", listed[filepath.ToSlash(name)], name)
		}
		delete(listed, filepath.ToSlash(name))
		return err
	})
	if err != nil || len(listed) > 0 {
		t.Errorf("the manifest lists %v, %v", listed, err)
	}
}

// With its keys a backup goes on signing; nothing is overwritten (AU-06).
func TestBackupWithKeys(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	run(t, s, newInvocation("exec"), exited(0))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	withKeys := backupOptions(opts, dir)
	withKeys.WithKeys = true
	if _, err := Backup(t.Context(), withKeys); err != nil { // no daemon runs
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "keys", "audit.key")); err != nil {
		t.Error(err)
	}
	checkManifest(t, dir)
	if _, err := Backup(t.Context(), withKeys); codeOf(err) != dray.CodeConflict {
		t.Errorf("a second backup to the same directory returns %v", err)
	}
	r, _ := reopen(t, options(dir))
	run(t, r, newInvocation("exec"), exited(0))
	checkLog(t, r)
	checkNoFindings(t, mustVerify(t, options(dir), nil))
}

func TestBackupWithoutLog(t *testing.T) {
	parent := t.TempDir()
	_, err := Backup(t.Context(),
		backupOptions(options(t.TempDir()), filepath.Join(parent, "backup")))
	if codeOf(err) != dray.CodeNotFound {
		t.Errorf("Backup returns %v", err)
	}
	checkNames(t, parent)
}

// checkNames checks the names in a directory.
func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s has %q, want %q", dir, names, want)
	}
}

// A cancelled backup leaves nothing.
func TestCancelledBackup(t *testing.T) {
	opts := options(t.TempDir())
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	run(t, open(t, opts), inv, exited(0))
	for _, at := range []string{"audit.db, pages", "captures"} {
		ctx, cancel := context.WithCancel(t.Context())
		parent := t.TempDir()
		cancelled := backupOptions(opts, filepath.Join(parent, "backup"))
		cancelled.Progress = func(what string, _, _ int64) {
			if what == at {
				cancel()
			}
		}
		if _, err := Backup(ctx, cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("Backup returns %v", err)
		}
		checkNames(t, parent)
		cancel()
	}
}

// backupChildDir makes the test binary back up the log in crashDir, and kill itself when the first
// capture is copied.
const backupChildDir = "DRAY_TEST_BACKUP_DIR"

func backupChild(dir string) {
	opts := backupOptions(options(os.Getenv(crashDir)), dir)
	opts.Progress = func(what string, _, _ int64) {
		if what == "captures" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if _, err := Backup(context.Background(), opts); err != nil {
		panic(err)
	}
}

// A backup whose process is killed has no name of its own and no manifest. The next backup
// succeeds.
func TestKilledBackupLooksIncomplete(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	run(t, s, inv, exited(0))
	parent := t.TempDir()
	dir := filepath.Join(parent, "backup")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+filepath.Dir(opts.Path), backupChildDir+"="+dir)
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
		status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), ".backup.partial-") {
		t.Fatalf("%v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(parent, entries[0].Name(), ManifestName)); err == nil {
		t.Error("it has a manifest")
	}
	if _, err := Backup(t.Context(), backupOptions(opts, dir)); err != nil {
		t.Fatal(err)
	}
	checkManifest(t, dir)
}

// While a backup copies captures, retention removes none, and removes them later.
func TestBackupHoldsCaptures(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	run(t, s, inv, exited(0))
	unused(t, s)
	during := backupOptions(opts, filepath.Join(t.TempDir(), "backup"))
	during.Progress = func(what string, done, total int64) {
		if what == "audit.db, pages" && done == total {
			if report := prune(t, s, time.Now()); report.Calls != 1 || report.Files != 0 {
				t.Errorf("meanwhile: %+v", report)
			}
		}
	}
	if _, err := Backup(t.Context(), during); err != nil {
		t.Fatal(err)
	}
	checkNoFindings(t, mustVerify(t, options(during.Dir), nil))
	if report := prune(t, s, time.Now()); report.Files != 1 {
		t.Errorf("afterwards: %+v", report)
	}
}
