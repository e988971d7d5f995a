package command

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	if held, err := locked(path); held || err != nil {
		t.Fatalf("a lock that nobody made: %v, %v", held, err)
	}
	l, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path); !errors.Is(err, errLocked) {
		t.Errorf("taken twice: %v", err)
	}
	for range 2 { // asking takes nothing away
		if held, err := locked(path); !held || err != nil {
			t.Errorf("held lock: %v, %v", held, err)
		}
	}
	l.unlock()
	if held, err := locked(path); held || err != nil {
		t.Errorf("free lock: %v, %v", held, err)
	}
	again, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	again.unlock()
}

// Whoever may write into the folder must not be able to have another file locked or made.
func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "l")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Fatal(err)
	}
	if l, err := tryLock(path); err == nil {
		l.unlock()
		t.Error("a link was followed")
	}
}
