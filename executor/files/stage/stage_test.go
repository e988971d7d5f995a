package stage

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// Modes are exact, and the manifest is right (SY-05, SY-10).
func TestWriteTree(t *testing.T) {
	for _, stepwise := range []bool{false, true} {
		t.Run("stepwise "+strconv.FormatBool(stepwise), func(t *testing.T) {
			if stepwise {
				withoutOpenat2(t)
			}
			testWriteTree(t)
		})
	}
}

func testWriteTree(t *testing.T) {
	dir, large := scratch(t), strings.Repeat("0123456789abcdef", 3<<16+1) // just over three MiB
	first := []made{
		mkdir("a"), file("a/one", "1"),
		{name: "a/run", content: "#!", mode: 0o755},
		mkdir("a/empty"), file("b/deep/er/two", large),
		file("none", ""), file("odd \xff\n name", "odd"), file(strings.Repeat("n", 255), "long"),
	}
	written := mustWrite(t, dir, first...)
	if len(written) != 6 {
		t.Errorf("got %+v", written)
	}
	for i, want := range []dray.WrittenFile{
		{Name: "a/one", Size: 1, SHA256: sum("1"), Mode: 0o600, Action: dray.FileCreated},
		{Name: "a/run", Size: 2, SHA256: sum("#!"), Mode: 0o600, Action: dray.FileCreated},
		{
			Name: "b/deep/er/two", Size: int64(len(large)), SHA256: sum(large), Mode: 0o600,
			Action: dray.FileCreated,
		},
	} {
		if written[i] != want {
			t.Errorf("got %+v, want %+v", written[i], want)
		}
	}
	want := map[string]string{
		"a": "drwx------", "a/one": "-rw------- 1", "a/run": "-rw------- #!", "a/empty": "drwx------",
		"b": "drwx------", "b/deep": "drwx------", "b/deep/er": "drwx------", "b/deep/er/two": "-rw------- " + large,
		"none": "-rw------- ", "odd \xff\n name": "-rw------- odd", strings.Repeat("n",
			255): "-rw------- long",
	}
	wantTree(t, dir, want)

	// A repetition changes nothing.
	before := sh(t, dir, "stat -c %n%i%Z a/* b/deep/er/two none")
	for _, p := range mustWrite(t, dir, first...) {
		if p.Action != dray.FileUnchanged || p.SHA256Before != p.SHA256 {
			t.Errorf("got %+v", p)
		}
	}
	if after := sh(t, dir, "stat -c %n%i%Z a/* b/deep/er/two none"); after != before {
		t.Errorf("got %s, want %s", after, before)
	}

	// One file of each kind, and the x bit on demand.
	written, err := writeTree(t, dir, dray.WriteTreeOptions{Executable: true}, file("a/one", "one"),
		file("a/run", "#!"),
		made{name: "a/run2", content: "#!", mode: 0o755}, file("b/deep/er/two", large[1:]), file("b/new",
			"n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []dray.WrittenFile{
		{
			Name: "a/one", Size: 3, SHA256: sum("one"), SHA256Before: sum("1"), Mode: 0o600,
			Action: dray.FileReplaced,
		},
		{
			Name: "a/run", Size: 2, SHA256: sum("#!"), SHA256Before: sum("#!"), Mode: 0o600,
			Action: dray.FileUnchanged,
		},
		{Name: "a/run2", Size: 2, SHA256: sum("#!"), Mode: 0o700, Action: dray.FileCreated},
		{
			Name: "b/deep/er/two", Size: int64(len(large) - 1), SHA256: sum(large[1:]),
			SHA256Before: sum(large), Mode: 0o600, Action: dray.FileReplaced,
		},
		{Name: "b/new", Size: 1, SHA256: sum("n"), Mode: 0o600, Action: dray.FileCreated},
	} {
		if written[i] != want {
			t.Errorf("got %+v, want %+v", written[i], want)
		}
	}
	want["a/one"], want["a/run2"], want["b/deep/er/two"], want["b/new"] = "-rw------- one", "-rwx------ #!", "-rw------- "+large[1:], "-rw------- n"
	wantTree(t, dir, want)
}

// withoutOpenat2 makes the test resolve names as on old kernels.
func withoutOpenat2(t *testing.T) {
	had := linux.HasOpenat2
	linux.HasOpenat2 = func() bool { return false }
	t.Cleanup(func() { linux.HasOpenat2 = had })
}

// A dry run returns the same manifest as the write, and writes nothing (SY-10).
func TestDryRun(t *testing.T) {
	dir := scratch(t)
	mustWrite(t, dir, file("same", "s"), file("other", "o"), mkdir("d"))
	now := contentOf(t, dir)
	list := []made{
		file("same", "s"), file("other", "O"), file("d/new", strings.Repeat("n", 2<<20)),
		file("e/f/new", ""),
	}
	planned, err := writeTree(t, dir, dray.WriteTreeOptions{DryRun: true}, list...)
	if err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir, now)
	done := mustWrite(t, dir, list...)
	for i := range done {
		if planned[i] != done[i] {
			t.Errorf("the dry run returned %+v, the write %+v", planned[i], done[i])
		}
	}
	for _, list := range [][]made{
		{file("d", "")},
		{mkdir("same")},
		{file("same/below", "")},
		{file("x", ""), file("x", "")},
	} {
		_, err := writeTree(t, dir, dray.WriteTreeOptions{DryRun: true}, list...)
		wantCode(t, list[0].name, err, dray.CodePathInvalid)
	}
}

// A file is replaced, never written through (SY-03).
func TestWriteTreeReplacesFiles(t *testing.T) {
	dir := scratch(t)
	sh(t, dir, `mkdir outside root; echo secret >outside/secret; cp -a outside/secret outside/linked; ln outside/linked root/hard
		cd root; ln -s ../outside/secret link; ln -s ../outside dangling; ln -s no-such broken
		mkfifo fifo; mknod device c 1 3
		perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local=>"socket",Listen=>1)' || python3 -c 'import socket;socket.socket(socket.AF_UNIX).bind("socket")'`)
	before := contentOf(t, dir+"/outside")
	names := []string{"link", "dangling", "broken", "fifo", "device", "socket", "hard"}
	var list []made
	want := map[string]string{}
	for _, name := range names {
		list = append(list, file(name, "new"))
		want[name] = "-rw------- new"
	}
	written := mustWrite(t, dir+"/root", list...)
	for _, p := range written {
		if before := map[bool]string{true: sum("secret\n")}[p.Name == "hard"]; p.Action != dray.FileReplaced || p.SHA256Before != before {
			t.Errorf("got %+v", p)
		}
	}
	wantTree(t, dir+"/root", want)
	wantTree(t, dir+"/outside", before)

	// Equal content with a second hard link is replaced: it could change through that link.
	sh(t, dir+"/root", "ln hard ../outside/again")
	if written := mustWrite(t, dir+"/root",
		file("hard", "new")); written[0].Action != dray.FileReplaced {
		t.Errorf("got %+v", written[0])
	}
	if got := sh(t, dir+"/root", "stat -c %h hard"); got != "1\n" {
		t.Errorf("it has %s names", got)
	}
}

// Invalid trees are refused before anything is written (SY-03, SY-09).
func TestWriteTreeRefusesInvalidTrees(t *testing.T) {
	dir := scratch(t)
	sh(t, dir, `mkdir outside root; cd root; mkdir sub; echo f >file; ln -s ../outside out; ln -s sub in; ln -s . here; mkfifo fifo; mkdir `+Prefix+`held; chmod 755 `+Prefix+`held`)
	before := contentOf(t, dir)
	lie := func(change func(*dray.TreeEntry)) made {
		return made{name: "liar", content: "12345", entry: change}
	}
	cause := errors.New("the wire broke")
	for _, c := range []struct {
		name string
		code dray.Code
		list []made
	}{
		{"a directory for a file", dray.CodePathInvalid, []made{file("sub", "")}},
		{"a file for a directory", dray.CodePathInvalid, []made{mkdir("file")}},
		{"a file above a file", dray.CodePathInvalid, []made{file("file/below", "")}},
		{"a FIFO above a file", dray.CodePathInvalid, []made{file("fifo/below", "")}},
		{"a symlink that leads out", dray.CodePathInvalid, []made{file("out/x", "")}},
		{"a symlink that stays in", dray.CodePathInvalid, []made{file("in/x", "")}},
		{"a symlink to here", dray.CodePathInvalid, []made{file("here/x", "")}},
		{"a directory that is a symlink", dray.CodePathInvalid, []made{mkdir("in")}},
		{"a symlink in the middle", dray.CodePathInvalid, []made{file("here/sub/x", "")}},
		{"parent", dray.CodePathInvalid, []made{file("../outside/x", "")}},
		{"parent in the middle", dray.CodePathInvalid, []made{file("sub/../../outside/x", "")}},
		{"parent at the end", dray.CodePathInvalid, []made{file("sub/..", "")}},
		{"absolute", dray.CodePathInvalid, []made{file(dir+"/outside/x", "")}},
		{"the root itself", dray.CodePathInvalid, []made{mkdir(".")}},
		{"no name", dray.CodePathInvalid, []made{file("", "")}},
		{"a slash at the end", dray.CodePathInvalid, []made{mkdir("x/")}},
		{"NUL", dray.CodePathInvalid, []made{file("a\x00b", "")}},
		{"256 bytes", dray.CodePathInvalid, []made{file(strings.Repeat("n", 256), "")}},
		{
			"a path without end", dray.CodePathInvalid,
			[]made{file(strings.Repeat("subdir/", 1000)+"x", "")},
		},
		{"our own names", dray.CodePathInvalid, []made{file(Prefix+"x/journal", "")}},
		{
			"our own names below", dray.CodePathInvalid,
			[]made{file("sub/"+strings.ToUpper(Prefix)+"x/journal", "")},
		},
		{"a file twice", dray.CodePathInvalid, []made{file("x", ""), file("x", "")}},
		{"a directory twice", dray.CodePathInvalid, []made{mkdir("x"), mkdir("x")}},
		{"a file and a directory", dray.CodePathInvalid, []made{file("x", ""), mkdir("x")}},
		{"a directory and a file", dray.CodePathInvalid, []made{mkdir("x"), file("x", "")}},
		{"a file below a file", dray.CodePathInvalid, []made{file("x", ""), file("x/y", "")}},
		{"a device", dray.CodePathInvalid, []made{lie(func(e *dray.TreeEntry) { e.Type = "other" })}},
		{"longer", dray.CodeTransferFailed, []made{lie(func(e *dray.TreeEntry) { e.Size = 4 })}},
		{"shorter", dray.CodeTransferFailed, []made{lie(func(e *dray.TreeEntry) { e.Size = 6 })}},
		{
			"shorter by far", dray.CodeTransferFailed,
			[]made{lie(func(e *dray.TreeEntry) { e.Size = 10 << 30 })},
		},
		{"negative", dray.CodeTransferFailed, []made{lie(func(e *dray.TreeEntry) { e.Size = -1 })}},
		{"resumed", dray.CodeTransferFailed, []made{lie(func(e *dray.TreeEntry) { e.Offset = 2 })}},
		{
			"refused by its source", dray.CodeNotFound,
			[]made{lie(func(e *dray.TreeEntry) { e.Refused = dray.Errorf(dray.CodeNotFound, "it vanished") })},
		},
		{
			"broken off", dray.CodeTransferFailed,
			[]made{{
				name: "x", content: "123", entry: func(e *dray.TreeEntry) { e.Size = 10 },
				after: cause,
			}},
		},
		{
			"the end of something else", dray.CodeAgentLost,
			[]made{{name: "x", content: "123", after: dray.Errorf(dray.CodeAgentLost, "lost: %w", io.EOF)}},
		},
		{
			"the end of something else in the middle", dray.CodeAgentLost,
			[]made{{
				name: "x", content: "123", entry: func(e *dray.TreeEntry) { e.Size = 9 },
				after: dray.Errorf(dray.CodeAgentLost, "lost: %w", io.EOF),
			}},
		},
		{
			"broken off with a code", dray.CodeAgentLost,
			[]made{{name: "x", content: "123", after: dray.Errorf(dray.CodeAgentLost, "lost")}},
		},
	} {
		for _, stepwise := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: " stepwise"}[stepwise], func(t *testing.T) {
				if stepwise {
					withoutOpenat2(t)
				}
				fine := []made{
					file("before", "1"), file("sub/before", "1"), file("file", "replaced"),
					mkdir("new"), file("new/large", strings.Repeat("1", 2<<20)),
				}
				if c.list[0].name == "file" || c.list[0].name == "file/below" {
					fine = fine[:2]
				}
				_, err := writeTree(t, dir+"/root", dray.WriteTreeOptions{}, append(fine, c.list...)...)
				wantCode(t, c.name, err, c.code)
				wantTree(t, dir, before)
			})
		}
	}
}

// Neither the umask, nor a group or access list of the root, nor an attribute of the replaced file
// has an effect (SY-05).
func TestModesIgnoreUmaskAndACLs(t *testing.T) {
	for _, umask := range []int{0, 0o077, 0o777} {
		dir := scratch(t)
		sh(t, dir, `mkdir -p there; chmod 2777 . there; printf old >there/old; chmod 6777 there/old; chgrp 1 . there`)
		for _, path := range []string{dir, dir + "/there"} {
			setDefaultACL(t, path)
		}
		if err := syscall.Setxattr(dir+"/there/old", "user.mark", []byte("x"), 0); err != nil &&
			!errors.Is(err, syscall.EOPNOTSUPP) {
			t.Fatal(err)
		}
		had := syscall.Umask(umask)
		_, err := writeTree(t, dir, dray.WriteTreeOptions{Executable: true}, file("there/old", "new"),
			file("there/sub/x", "x"),
			made{
				name: "y/run", content: "z",
				mode: 0o7755 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky,
			}, file("there/large", strings.Repeat("l", 2<<20)))
		syscall.Umask(had)
		if err != nil {
			t.Fatal(err)
		}
		for name, mode := range map[string]string{
			"there/old": "600", "there/sub": "700",
			"there/sub/x": "600", "y": "700", "y/run": "700", "there/large": "600",
		} {
			if got := strings.TrimSpace(sh(t, dir, "stat -c %a:%g "+name)); got != mode+":0" {
				t.Errorf("umask %o: %s: got %s, want %s:0", umask, name, got, mode)
			}
			buf := make([]byte, 1024)
			if n, err := syscall.Listxattr(dir+"/"+name, buf); n > 0 ||
				(err != nil && !errors.Is(err, syscall.EOPNOTSUPP)) {
				t.Errorf("%s has attributes %q, %v", name, buf[:max(n, 0)], err)
			}
		}
	}
}

// setDefaultACL sets a default access list that gives user 7 all permissions.
func setDefaultACL(t *testing.T, path string) {
	t.Helper()
	acl := []byte("\x02\x00\x00\x00" +
		"\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x07\x00\x07\x00\x00\x00" +
		"\x04\x00\x07\x00\xff\xff\xff\xff" + "\x10\x00\x07\x00\xff\xff\xff\xff" +
		"\x20\x00\x07\x00\xff\xff\xff\xff")
	if err := syscall.Setxattr(path, "system.posix_acl_default", acl, 0); err != nil &&
		!errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatal(err)
	}
}

// The end of the context before the commit cancels the write, and nothing is left (SY-09).
func TestCancelledWriteLeavesNothing(t *testing.T) {
	dir := scratch(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("time ran out")
	last := made{name: "last", content: "x", before: func() { cancel(cause) }}
	_, err := WriteTree(ctx, openRoot(t, dir),
		treeOf(file("x", "1"), file("y/z", strings.Repeat("1", 2<<20)), last), dray.WriteTreeOptions{})
	wantCode(t, "given up", err, dray.CodeTransferFailed)
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	wantTree(t, dir, nil)

	// The end of the context also ends the wait for a lock.
	lock, err := lockRoot(t.Context(), int(openRoot(t, dir).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(lock) }()
	short, cancel2 := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel2()
	_, err = WriteTree(short, openRoot(t, dir), treeOf(file("x", "1")), dray.WriteTreeOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || dray.CodeOf(err) != dray.CodeTransferFailed {
		t.Errorf("got %v", err)
	}
	wantTree(t, dir, nil)
}
