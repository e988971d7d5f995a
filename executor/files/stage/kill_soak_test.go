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
)

// writerProcess is this test binary as a process that places trees, or recovers, until it is
// killed.
const writerProcess = "place-until-killed"

// asVictim does what a victim is for, and does not return then.
func asVictim() {
	if len(os.Args) < 4 || os.Args[1] != writerProcess {
		return
	}
	if err := runWriterProcess(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runWriterProcess(dir, from string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	if from == "recover" {
		_, err := Recover(context.Background(), root)
		return err
	}
	version, err := strconv.Atoi(from)
	for ; err == nil; version++ {
		if _, err = fmt.Println(version); err != nil { // the parent went
			return err
		}
		_, err = WriteTree(context.Background(), root, treeOf(versioned(version)...),
			dray.WriteTreeOptions{})
	}
	return err
}

// versioned is a tree that says in each file which it is. Each version replaces what was there, and
// has a folder of its own.
func versioned(version int) []made {
	list := []made{file("large", strings.Repeat(fmt.Sprintf("%08d\n", version), 200_000))}
	for i := range 150 {
		list = append(list, file(fmt.Sprintf("f%d/g%d/%d", i%3, i%7, i), fmt.Sprintf("%08d\n", version)))
	}
	return append(list, file(fmt.Sprintf("own/%d/x", version), fmt.Sprintf("%08d\n", version)))
}

// killDuringWrite starts a victim and kills it at a random moment of a commit, or of all it does.
// It gives the version that was being placed.
func killDuringWrite(t *testing.T, r *rand.Rand, dir string, from int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], writerProcess, dir, strconv.Itoa(from))
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

// awaitJournal waits until somebody writes a journal, but not for ever: it is there for moments
// only.
func awaitJournal(dir string) {
	for giveUp := time.Now().Add(time.Second); time.Now().Before(giveUp); {
		if found, _ := filepath.Glob(dir + "/" + Prefix + "*/" + journalName); len(found) > 0 {
			return
		}
	}
}

// spin waits shorter than a timer can.
func spin(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

// wholeJournals counts the journals from which a recovery will finish.
func wholeJournals(t *testing.T, dir string) int {
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

// SY-06: a process that is killed at any moment leaves the old or the new tree after the next
// recovery, which may be killed too; where its journal was whole it is the new one. Nothing else is
// left.
func TestSoakKill(t *testing.T) {
	rounds := 20
	if soaking {
		rounds = 200
	}
	r := random(t)
	for where, dir := range map[string]string{"memory": scratch(t), "disk": t.TempDir()} {
		t.Run(where, func(t *testing.T) {
			before, journals, recoveries, news := 0, 0, 0, 0
			mustPlace(t, dir, versioned(0)...)
			for range rounds / 2 {
				last := killDuringWrite(t, r, dir, before+1)
				whole := wholeJournals(t, dir)
				if whole > 0 && r.IntN(3) == 0 {
					recoveries++
					killedRecovery(t, r, dir)
				}
				recoverIn(t, dir)
				now := versionIn(t, dir)
				if now != last && now != last-1 || whole > 0 && now != last {
					t.Fatalf("it was killed when it placed %d, with %d whole journals, and %d is there", last,
						whole, now)
				}
				if now == last {
					news++
				}
				before, journals = now, journals+whole
			}
			if journals == 0 {
				t.Error("no journal was ever whole")
			}
			report(t, killing, where, fmt.Sprint(rounds/2), fmt.Sprint(journals), fmt.Sprint(recoveries),
				fmt.Sprint(news), fmt.Sprint(rounds/2-news), "0")
		})
	}
}

func killedRecovery(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], writerProcess, dir, "recover")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	spin(time.Duration(r.IntN(60)) * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// versionIn gives the one version that all files are of.
func versionIn(t *testing.T, dir string) int {
	t.Helper()
	version := -1
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
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
