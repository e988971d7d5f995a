package stage

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// The old files are back after a commit whose new files the disk lost when it was written to. A
// device that fails at exactly this moment is not available here: the contents are truncated, as
// they are found after such an error, and the commit is rolled back with it (SY-06, SY-09).
func TestRollBackOfLostContent(t *testing.T) {
	dir := scratch(t)
	mustWrite(t, dir, file("d/replaced", "old"), file("theirs", "old"))
	p := newTransaction(int(openRoot(t, dir).Fd()), dray.WriteTreeOptions{})
	set := newRenameSet(p.resolver, p.root)
	err := errors.Join(
		p.receive(t.Context(), treeOf(file("d/replaced", "new"), file("d/created", "new"),
			file("theirs", "new"), file("gone", "new"))),
		p.plan(t.Context(), set))
	if err == nil {
		err = p.staging.commitJournal(t.Context(), p.journal())
	}
	if err != nil {
		t.Fatal(err)
	}
	done, err := set.apply()
	if err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "truncate -s 0 d/replaced d/created; rm theirs gone; printf theirs >theirs")
	if err := set.rollBack(done, unix.EIO); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	set.close()
	p.close()
	wantTree(t, dir, map[string]string{
		"d": "drwx------", "d/replaced": "-rw------- old", "theirs": "-rw-r--r-- theirs",
	})
}

// A device that accepts a file and fails to write it back refuses the write, and the old file stays
// (SY-06, SY-09). It is a loop device on a sparse file in a tmpfs that is full.
func TestDeviceFailsAtWriteback(t *testing.T) {
	const size = 64 << 20
	store := mounted(t, "size=8m,mode=700")
	image, dir := store+"/image", t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	sh(t, store, "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 -O ^has_journal image")
	if out, err := exec.Command("mount", "-o", "loop,errors=continue", image, dir).
		CombinedOutput(); err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	sh(t, dir, "chmod 700 .; rmdir lost+found; printf old >replaced; sync -f .")
	before := contentOf(t, dir)
	content := make([]byte, 16<<20)
	_, _ = rand.Read(content)
	_, err := writeTree(t, dir, dray.WriteTreeOptions{}, file("replaced", string(content)))
	if err == nil {
		t.Error("the device accepted more than it can hold")
	}
	t.Log(err)
	wantTree(t, dir, before)
}
