package executortest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// memTree is a dray.Tree in memory.
type memTree struct {
	list []memFile
	rest io.Reader
	at   int
}

// memFile is a file, or with a slash at the end of its name a directory.
type memFile struct {
	name, content string
	mode          fs.FileMode
	// onOpen is called when the entry is read; its error ends the tree.
	onOpen func() error
}

func (g *memTree) Next() (dray.TreeEntry, error) {
	if g.at == len(g.list) {
		return dray.TreeEntry{}, io.EOF
	}
	l := g.list[g.at]
	g.at++
	if l.onOpen != nil {
		if err := l.onOpen(); err != nil {
			return dray.TreeEntry{}, err
		}
	}
	g.rest = strings.NewReader(l.content)
	if name, folder := strings.CutSuffix(l.name, "/"); folder {
		return dray.TreeEntry{Name: name, Type: "directory", Mode: 0o755}, nil
	}
	return dray.TreeEntry{Name: l.name, Type: "file", Size: int64(len(l.content)), Mode: l.mode}, nil
}

func (g *memTree) Read(p []byte) (int, error) { return g.rest.Read(p) }
func (g *memTree) Close() error               { return nil }

func writeTree(ctx context.Context, f dray.Files, how dray.WriteTreeOptions,
	list ...memFile,
) ([]dray.WrittenFile, error) {
	return f.WriteTree(ctx, &memTree{list: list}, how)
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Written files have the right content and modes, and the manifest is right (SY-01, SY-05, SY-10).
func filesWriteTree(t *testing.T, h FilesHarness, f dray.Files) {
	large := string(randomBytes(random(t), 3<<20+7))
	h.Shell(t, h.Dir+"/root", `umask 0; mkdir -p place/old; cd place; printf same >same; chmod 600 same; printf old >old/file; ln -s ../../outside/secret link; mkfifo pipe; chmod 755 old`)
	list := []memFile{
		{name: "place/same", content: "same"},
		{name: "place/old/", content: ""},
		{name: "place/old/file", content: "new"},
		{name: "place/link", content: "l"},
		{name: "place/pipe", content: "p"},
		{name: "place/new/", content: ""},
		{name: "place/new/large", content: large},
		{name: "place/new/run", content: "#!", mode: 0o755},
		{name: "place/deep/er/odd \xff\n name", content: ""},
		{name: "place/new/empty/", content: ""},
	}
	want := []dray.WrittenFile{
		{Name: "place/same", Action: dray.FileUnchanged, SHA256Before: sumOf("same")},
		{Name: "place/old/file", Action: dray.FileReplaced, SHA256Before: sumOf("old")},
		{Name: "place/link", Action: dray.FileReplaced},
		{Name: "place/pipe", Action: dray.FileReplaced},
		{Name: "place/new/large", Action: dray.FileCreated},
		{Name: "place/new/run", Action: dray.FileCreated},
		{Name: "place/deep/er/odd \xff\n name", Action: dray.FileCreated},
	}
	next := 0
	for _, l := range list {
		if !strings.HasSuffix(l.name, "/") {
			want[next].Size, want[next].SHA256 = int64(len(l.content)), sumOf(l.content)
			want[next].Mode = 0o600
			next++
		}
	}
	want[5].Mode = 0o700
	before := h.listing(t, "root/place", "outside")
	for _, dry := range []bool{true, false} {
		got, err := writeTree(t.Context(), f, dray.WriteTreeOptions{DryRun: dry, Executable: true},
			list...)
		if err != nil || len(got) != len(want) {
			t.Fatalf("dry %v: got %+v, %v", dry, got, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("dry %v: got %+v, want %+v", dry, got[i], want[i])
			}
		}
		if now := h.listing(t, "root/place", "outside"); dry && now != before {
			t.Errorf("a dry run changed:\n%s", difference(before, now))
		}
	}
	for _, l := range list {
		name, folder := strings.CutSuffix(l.name, "/")
		info, err := f.Stat(name)
		switch mode := info.Mode; {
		case err != nil, folder != (info.Type == "directory"):
			t.Errorf("%s: %+v, %v", name, info, err)
		case name == "place/old" && mode != 0o755, name == "place/new/run" && mode != 0o700, folder &&
			name != "place/old" && mode != 0o700:
			t.Errorf("%s has mode %v", name, mode)
		case !folder:
			if got, err := read(f, name, 0); err != nil || !bytes.Equal(got, []byte(l.content)) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
	h.Shell(t, h.Dir, `[ "$(cat outside/secret)" = secret ]`)
	wantNoStagingDir(t, h)
	h.Shell(t, h.Dir+"/root", "rm -r place")
}

func wantNoStagingDir(t *testing.T, h FilesHarness) {
	t.Helper()
	if left := h.Shell(t, h.Dir+"/root", "ls -A | grep '^.dray-' || :"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// After an error nothing was written, and other operations work (SY-03, SY-09).
func filesWriteTreeRefuses(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p refuse/folder; cd refuse; printf old >file; : >plain; ln -s ../../outside out; ln -s folder in`)
	before := h.listing(t, "root", "outside")
	broken := dray.Errorf(dray.CodeTransferFailed, "the source vanished")
	plain := errors.New("the wire broke")
	fine := []memFile{
		{name: "refuse/file", content: "new"},
		{name: "refuse/new/", content: ""},
		{name: "refuse/new/file", content: strings.Repeat("n", 2<<20)},
	}
	for _, c := range []struct {
		code dray.Code
		last memFile
	}{
		{dray.CodePathInvalid, memFile{name: "refuse/out/x"}},
		{dray.CodePathInvalid, memFile{name: "refuse/in/x"}},
		{dray.CodePathInvalid, memFile{name: "refuse/folder"}},
		{dray.CodePathInvalid, memFile{name: "refuse/plain/"}},
		{dray.CodePathInvalid, memFile{name: "refuse/plain/x"}},
		{dray.CodePathInvalid, memFile{name: "../outside/x"}},
		{dray.CodePathInvalid, memFile{name: h.Dir + "/outside/x"}},
		{dray.CodePathInvalid, memFile{name: "refuse/" + strings.Repeat("n", 256)}},
		{dray.CodePathInvalid, memFile{name: "refuse/.dray-stage-x/journal"}},
		{dray.CodeTransferFailed, memFile{name: "refuse/x", onOpen: func() error { return broken }}},
		{dray.CodeTransferFailed, memFile{name: "refuse/x", onOpen: func() error { return plain }}},
	} {
		// A large rest must not be sent.
		list := slices.Concat(fine, []memFile{
			c.last,
			{name: "refuse/much", content: strings.Repeat("m", 8<<20)},
		})
		for _, dry := range []bool{false, true} {
			got, err := writeTree(t.Context(), f, dray.WriteTreeOptions{DryRun: dry}, list...)
			if !isWriteError(err, c.code, plain) || len(got) > 0 {
				t.Errorf("%.100q, dry %v: got %+v, %v (%s), want %s", c.last.name, dry, got, err,
					dray.CodeOf(err), c.code)
			}
		}
		if now := h.listing(t, "root", "outside"); now != before {
			t.Fatalf("after %.100q:\n%s", c.last.name, difference(before, now))
		}
		if _, err := f.Stat("refuse/file"); err != nil {
			t.Errorf("after %.100q: %v", c.last.name, err)
		}
	}
	h.Shell(t, h.Dir+"/root", "rm -r refuse")
}

// listing describes the content of directories, files with their modification times. Those of
// directories change with a staging directory.
func (h FilesHarness) listing(t *testing.T, folders ...string) string {
	t.Helper()
	return h.Shell(t, h.Dir, "find "+strings.Join(folders, " ")+` -type d -printf '%y %m %U:%G %p\n' -o -printf '%y %m %n %U:%G %s %T@ %p %.100l\n' | LC_ALL=C sort`)
}

// difference returns the lines that only one of two listings has.
func difference(before, now string) string {
	var all strings.Builder
	tell := func(sign string, lines, others string) {
		known := strings.Split(others, "\n")
		for line := range strings.SplitSeq(lines, "\n") {
			if !slices.Contains(known, line) {
				fmt.Fprintf(&all, "%s %.300s\n", sign, line)
			}
		}
	}
	tell("-", before, now)
	tell("+", now, before)
	return all.String()
}

// isWriteError accepts the source's own error instead of a code.
func isWriteError(err error, code dray.Code, own error) bool {
	return err != nil && (dray.CodeOf(err) == code || errors.Is(err, own))
}

// The end of the context before the commit cancels the write and leaves nothing (SY-09).
func filesWriteTreeCancelled(t *testing.T, h FilesHarness, f dray.Files) {
	before := h.listing(t, "root")
	cause := errors.New("no more time")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := withTimeout(t, 30*time.Second, func() error {
		_, err := writeTree(ctx, f, dray.WriteTreeOptions{},
			memFile{name: "up/a", content: strings.Repeat("a", 3<<20)}, memFile{
				name: "up/b",
				onOpen: func() error {
					cancel(cause)
					return nil
				},
			}, memFile{name: "up/c", content: strings.Repeat("c", 3<<20)})
		return err
	})
	if !errors.Is(err, cause) || dray.CodeOf(err) != dray.CodeTransferFailed {
		t.Errorf("got %v (%s)", err, dray.CodeOf(err))
	}
	if now := h.listing(t, "root"); now != before {
		t.Errorf("it left:\n%s", difference(before, now))
	}
	if _, err := f.Stat("inside/secret"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A write with expectations removes and replaces what is expected and nothing else, or the files do
// not support that and nothing is written.
func filesWriteTreeExpects(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", "mkdir -p strict/d; printf old >strict/d/x; printf old >strict/y")
	before := h.listing(t, "root")
	how := dray.WriteTreeOptions{
		Remove: []string{"strict/d/x", "strict/d"},
		Expect: map[string]string{
			"strict/d": dray.ExpectDirectory, "strict/d/x": sumOf("old"), "strict/y": sumOf("other"),
		},
	}
	_, err := writeTree(t.Context(), f, how, memFile{name: "strict/y", content: "new"})
	unsupported := dray.CodeOf(err) == dray.CodeUnsupported
	if !unsupported {
		isCode(t, "another content", err, dray.CodeConflict)
	}
	if now := h.listing(t, "root"); now != before {
		t.Errorf("it changed:\n%s", difference(before, now))
	}
	how.Expect["strict/y"] = sumOf("old")
	got, err := writeTree(t.Context(), f, how, memFile{name: "strict/y", content: "new"})
	if unsupported {
		isCode(t, "expectations", err, dray.CodeUnsupported)
		return
	}
	if err != nil || len(got) != 2 || got[1].Name != "strict/d/x" ||
		got[1].Action != dray.FileDeleted || got[1].SHA256Before != sumOf("old") {
		t.Errorf("got %+v, %v", got, err)
	}
	if left := h.Shell(t, h.Dir+"/root/strict", "ls; cat y"); left != "y\nnew" {
		t.Errorf("it left %q", left)
	}
	wantNoStagingDir(t, h)
}

// A directory that is replaced by a symlink during writes never leads out, and no tree is written
// in part (SY-03).
func filesWriteTreeRace(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", "mkdir swap")
	stop := h.Background(t, h.Dir+"/root/swap", `while :; do rm -rf d; ln -s ../../outside d; rm d; mkdir d; done 2>/dev/null`)
	written, refused := 0, 0
	deadline := time.Now().Add(time.Minute)
	for i := 0; written < h.Rounds/2 || refused < h.Rounds/2; i++ {
		if time.Now().After(deadline) {
			t.Fatalf("it was written %d times and refused %d times", written, refused)
		}
		content := strconv.Itoa(i)
		_, err := writeTree(t.Context(), f, dray.WriteTreeOptions{},
			memFile{name: "swap/d/x", content: content}, memFile{
				name:    "swap/d/e/y",
				content: content,
			}, memFile{name: fmt.Sprint("swap/z", i), content: content})
		if err == nil {
			written++
			continue
		}
		refused++
		if code := dray.CodeOf(err); code != dray.CodePathInvalid && code != dray.CodeTransferFailed {
			t.Errorf("got %v (%s)", err, code)
		}
		if _, err := f.Stat(fmt.Sprint("swap/z", i)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a part of a refused tree was written: %v", err)
		}
	}
	stop()
	if got := h.Shell(t, h.Dir, "ls outside; cat outside/*"); got != "secret\nsecret\n" {
		t.Errorf("outside has %q", got)
	}
	wantNoStagingDir(t, h)
	// A command of the loop may still run.
	h.Shell(t, h.Dir+"/root", "until rm -rf swap; do :; done 2>/dev/null")
}
