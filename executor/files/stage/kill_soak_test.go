package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// writerProcess is the argument that makes this test binary write trees, or recover, until it is
// killed.
const writerProcess = "place-until-killed"

// maybeRunWriter runs the writer and exits if the arguments ask for it.
func maybeRunWriter() {
	if len(os.Args) < 5 || os.Args[1] != writerProcess {
		return
	}
	if err := runWriterProcess(os.Args[2], os.Args[3], os.Args[4] == "strict"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runWriterProcess(dir, from string, strict bool) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	if from == "recover" {
		_, err := Recover(context.Background(), root, dray.WriteTreeOptions{})
		return err
	}
	version, err := strconv.Atoi(from)
	for ; err == nil; version++ {
		if _, err = fmt.Println(version); err != nil { // the parent went
			return err
		}
		list, how := versioned(version), dray.WriteTreeOptions{}
		if strict {
			list, how = strictVersion(version)
		}
		_, err = WriteTree(context.Background(), root, treeOf(list...), how)
	}
	return err
}

// strictVersion returns a tree that expects and removes the files of the last version: its own
// directory, and "flip", which is a file in even versions and a directory in odd ones.
func strictVersion(version int) (list []made, how dray.WriteTreeOptions) {
	how.Expect = map[string]string{}
	before := map[string]string{}
	for _, m := range withFlip(version - 1) {
		if before[m.name] = sum(m.content); m.dir {
			before[m.name] = dray.ExpectDirectory
		}
	}
	list = withFlip(version)
	for _, m := range list {
		how.Expect[m.name] = before[m.name]
		delete(before, m.name)
	}
	before[fmt.Sprint("own/", version-1)] = dray.ExpectDirectory
	before["flip"] = how.Expect["flip"] // it is removed too
	for name, expected := range before {
		how.Expect[name] = expected
		how.Remove = append(how.Remove, name)
	}
	return list, how
}

func withFlip(version int) []made {
	if version%2 == 0 {
		return append(versioned(version), file("flip", "flip"))
	}
	list := append(versioned(version), mkdir("flip"))
	for i := range 20 {
		list = append(list, file(fmt.Sprint("flip/", i%4, "/", i), fmt.Sprintf("%08d\n", version)))
	}
	for i := range 4 {
		list = append(list, mkdir(fmt.Sprint("flip/", i)))
	}
	return list
}

// versioned returns a tree whose files contain its version. Each version replaces the files of the
// last one, and has a directory of its own.
func versioned(version int) []made {
	list := []made{file("large", strings.Repeat(fmt.Sprintf("%08d\n", version), 200_000))}
	for i := range 150 {
		list = append(list, file(fmt.Sprintf("f%d/g%d/%d", i%3, i%7, i), fmt.Sprintf("%08d\n", version)))
	}
	return append(list, file(fmt.Sprintf("own/%d/x", version), fmt.Sprintf("%08d\n", version)))
}

// killDuringWrite starts a writer and kills it at a random moment of a commit, or of all its work.
// It returns the version that was being written.
func killDuringWrite(t *testing.T, r *rand.Rand, dir, mode string, from int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], writerProcess, dir, strconv.Itoa(from), mode)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	versions, last := make(chan int, 1000), -1
	go func() {
		defer close(versions)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if v, err := strconv.Atoi(lines.Text()); err == nil {
				versions <- v
			}
		}
	}()
	for range 1 + r.IntN(3) {
		last = <-versions
	}
	if r.IntN(3) > 0 {
		awaitJournal(dir)
		spin(time.Duration(r.IntN(1500)) * time.Microsecond)
	} else {
		spin(time.Duration(r.IntN(40)) * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	for v := range versions {
		last = v
	}
	_ = cmd.Wait()
	return last
}

// awaitJournal waits at most a second for a journal: it exists for moments only.
func awaitJournal(dir string) {
	for giveUp := time.Now().Add(time.Second); time.Now().Before(giveUp); {
		if found, _ := filepath.Glob(dir + "/" + Prefix + "*/" + journalName); len(found) > 0 {
			return
		}
	}
}

// spin waits for less time than a timer can.
func spin(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

// validJournals counts the valid journals.
func validJournals(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(dir + "/" + Prefix + "*/" + journalName)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, path := range found {
		b, err := os.ReadFile(path)
		if _, torn := decodeJournal(b); err == nil && torn == nil {
			whole++
		}
	}
	return whole
}

var killPage = soakreport.Page{
	File: "kills.md", Title: "A process is killed while it writes a tree",
	Text: `Each time SIGKILL ended a process that wrote one tree after the other, mostly just after it
had written its journal. Then the write was recovered; some of these recoveries were killed too and
followed by another (*recoveries killed*). *New* counts the times when every file was of the tree
that was being written, *old* when every file was of the tree before, *left* the staging
directories that remained. Trees *with removals* expect each file of the tree before, remove some of
them, and put a directory in the place of a file and the reverse.`,
	Target: "every file is of one tree, which is the new one if the journal was complete; nothing " +
		"is left",
	Columns: []string{
		"where", "kills", "complete journals", "recoveries killed", "new", "old", "left",
	},
	Key: 1,
}

// killCount is what killPage reports of one directory.
type killCount struct{ kills, journals, recoveries, newTrees, oldTrees, left int }

func (c *killCount) cells() []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(c.kills), soakreport.Value(c.journals), soakreport.Value(c.recoveries),
		soakreport.Value(c.newTrees), soakreport.Value(c.oldTrees), soakreport.Exactly(c.left, 0),
	}
}

// A process that is killed at any moment leaves the old or the new tree after the next recovery,
// which may be killed too. The tree is the new one if its journal was complete. Nothing else is
// left (SY-06). The same holds for commits with removals (PY-10).
func TestSoakKill(t *testing.T) {
	r := soakreport.Rand(t)
	for where, dir := range map[string]string{
		"memory": scratch(t), "disk": t.TempDir(),
		"memory, with removals": scratch(t), "disk, with removals": t.TempDir(),
	} {
		t.Run(where, func(t *testing.T) {
			var count killCount
			killPage.Row(t, []string{where}, count.cells)
			mode, first := "plain", versioned(0)
			if strings.Contains(where, "removals") {
				mode, first = "strict", withFlip(0)
			}
			mustWrite(t, dir, first...)
			version := 0
			rounds := soakreport.Count(100, 10)
			for count.kills < rounds || count.journals == 0 && count.kills < 10*rounds {
				version = count.killOnce(t, r, dir, mode, version)
				if t.Failed() {
					return
				}
			}
			if count.journals == 0 {
				t.Error("no journal was complete when its writer was killed")
			}
		})
	}
}

// killOnce kills a writer that starts with the version after from, recovers, and returns the
// version that is there then.
func (c *killCount) killOnce(t *testing.T, r *rand.Rand, dir, mode string, from int) int {
	t.Helper()
	last := killDuringWrite(t, r, dir, mode, from+1)
	c.kills++
	journals := validJournals(t, dir)
	c.journals += journals
	if journals > 0 && r.IntN(3) == 0 {
		killedRecovery(t, r, dir)
		c.recoveries++
	}
	recoverIn(t, dir)
	left, err := filepath.Glob(dir + "/" + Prefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	c.left += len(left)
	now := versionIn(t, dir)
	if mode == "strict" {
		checkRemovals(t, dir, now)
	}
	if now != last && now != last-1 || journals > 0 && now != last {
		t.Fatalf("killed while version %d was written, with %d complete journals: version %d is there",
			last, journals, now)
	}
	if now == last {
		c.newTrees++
	} else {
		c.oldTrees++
	}
	return now
}

// checkRemovals fails unless all that a version removes is gone.
func checkRemovals(t *testing.T, dir string, version int) {
	t.Helper()
	own := sh(t, dir, "ls own")
	info, err := os.Lstat(dir + "/flip")
	if err != nil || info.IsDir() != (version%2 == 1) || own != fmt.Sprintln(version) {
		t.Fatalf("version %d has %v, %v, and its own directories are %q", version, info, err, own)
	}
}

func killedRecovery(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], writerProcess, dir, "recover", "")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	spin(time.Duration(r.IntN(60)) * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// versionIn returns the version of all files.
func versionIn(t *testing.T, dir string) int {
	t.Helper()
	version := -1
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if name == "flip" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) < 9 {
			return errors.Join(err, fmt.Errorf("%s has %d bytes", name, len(b)))
		}
		var is int
		if _, err := fmt.Sscanf(string(b[:9]), "%d\n", &is); err != nil {
			return err
		}
		if own, ok := strings.CutPrefix(name, "own/"); ok {
			if own != fmt.Sprintf("%d/x", is) {
				return fmt.Errorf("%s is of %d", name, is)
			}
			version = max(version, is)
			return nil
		}
		if strings.Repeat(string(b[:9]), len(b)/9) != string(b) {
			return fmt.Errorf("%s is torn", name)
		}
		if version < 0 {
			version = is
		}
		if version != is {
			return fmt.Errorf("%s is of version %d, another of %d", name, is, version)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("%s/own/%d/x", dir, version)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("%s/own/%d/x", dir, version+1)); err == nil {
		t.Fatalf("of version %d a part is there", version+1)
	}
	if left, _ := filepath.Glob(dir + "/" + Prefix + "*"); len(left) > 0 {
		t.Fatalf("left: %q", left)
	}
	return version
}
