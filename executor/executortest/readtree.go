package executortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// readEntry is an entry of a tree with its content.
type readEntry struct {
	dray.TreeEntry
	content []byte
}

// readAll reads a tree to its end, and returns the entries before an error.
func readAll(t *testing.T, tree dray.Tree, err error) ([]readEntry, error) {
	t.Helper()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []readEntry
	for {
		e, err := tree.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		content, err := io.ReadAll(tree)
		all = append(all, readEntry{e, content})
		if err != nil {
			return all, err
		}
	}
}

func readTreeOf(t *testing.T, f dray.Files, what dray.ReadTreeOptions) ([]readEntry, error) {
	t.Helper()
	tree, err := f.ReadTree(t.Context(), what)
	return readAll(t, tree, err)
}

// summary returns a line for each entry.
func summary(all []readEntry) string {
	var b strings.Builder
	for _, e := range all {
		switch {
		case e.Refused != nil:
			fmt.Fprintf(&b, "%q refused %s\n", e.Name, e.Refused.Code)
		case e.Type == "file":
			fmt.Fprintf(&b, "%q %d\n", e.Name, len(e.content))
		default:
			fmt.Fprintf(&b, "%q/\n", e.Name)
		}
	}
	return b.String()
}

// wantEntries compares the entries of a tree.
func wantEntries(t *testing.T, f dray.Files, what dray.ReadTreeOptions,
	want ...string,
) []readEntry {
	t.Helper()
	all, err := readTreeOf(t, f, what)
	if got := summary(all); err != nil || got != strings.Join(want, "") {
		t.Errorf("%q: got\n%serror %v, want\n%s", what.Names, got, err, strings.Join(want, ""))
	}
	return all
}

// Files and directories arrive unchanged, whatever their sizes, names and holes (SY-01).
func readTreeExact(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p exact/a/empty exact/b; chmod 750 exact/b`)
	r := random(t)
	want := map[string][]byte{}
	for i, size := range []int{0, 1, 4095, 4096, 4097, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1<<20 +
		11} {
		name := fmt.Sprintf("exact/a/%d", i)
		want[name] = randomBytes(r, size)
		write(t, f, name, want[name], 0o640)
	}
	h.Shell(t, h.Dir+"/root", `truncate -s 700001 exact/b/hole; printf x | dd of=exact/b/hole bs=1 seek=400000 conv=notrunc 2>/dev/null; chmod 6711 exact/b/hole`)
	want["exact/b/hole"] = make([]byte, 700001)
	want["exact/b/hole"][400000] = 'x'
	folders := map[string]bool{"exact": true, "exact/a": true, "exact/a/empty": true, "exact/b": true}
	all, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: []string{"exact"}})
	if err != nil || len(all) != len(want)+len(folders) {
		t.Fatalf("got\n%serror %v", summary(all), err)
	}
	for _, e := range all {
		content, file := want[e.Name]
		if e.Refused != nil || file != (e.Type == "file") || folders[e.Name] == file ||
			!bytes.Equal(e.content, content) || e.Size != int64(len(content)) {
			t.Errorf("%q (%s, %d bytes) is not what was written, or refused: %v", e.Name, e.Type,
				len(e.content), e.Refused)
		}
		mode := map[string]uint32{"exact/b": 0o750, "exact/b/hole": 0o711, "exact/a/0": 0o640}[e.Name]
		if mode != 0 && uint32(e.Mode) != mode {
			t.Errorf("%s has mode %v", e.Name, e.Mode)
		}
	}
	again, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: []string{"exact"}})
	if err != nil || !slices.EqualFunc(all, again,
		func(a, b readEntry) bool { return a.TreeEntry == b.TreeEntry }) {
		t.Errorf("the second time got\n%serror %v", summary(again), err)
	}
}

// All bytes that the kernel allows in names arrive unchanged (SY-07).
func readTreeNames(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir names`)
	names := []string{
		"new\nline", "\xff\xfe", "tab\t\x1b[31m", strings.Repeat("n",
			255), "readme", "README", "caf\u00e9", "cafe\u0301", " ", "-rf", "..x", "a\\b", "*",
	}
	for _, name := range names {
		write(t, f, "names/"+name, []byte(name), 0o600)
	}
	all, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: []string{"names"}})
	if err != nil || len(all) != len(names)+1 {
		t.Errorf("got\n%serror %v", summary(all), err)
	}
	for _, e := range all[min(1, len(all)):] {
		if base := strings.TrimPrefix(e.Name, "names/"); !slices.Contains(names, base) ||
			string(e.content) != base {
			t.Errorf("%q has %q", e.Name, e.content)
		}
	}
}

// Only regular files and directories are read; others are refused by name, and the rest arrives
// (SY-02).
func readTreeRefuses(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir odd odd/d; echo 1 >odd/plain; ln -s plain odd/link; ln -s d odd/folderlink; ln -s /nowhere odd/dangling; ln -s /etc/passwd odd/out
mkfifo odd/fifo; echo 2 >odd/d/deep`)
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"odd"}},
		"\"odd\"/\n", "\"odd/d\"/\n", "\"odd/d/deep\" 2\n", "\"odd/dangling\" refused path_invalid\n", "\"odd/fifo\" refused path_invalid\n",
		"\"odd/folderlink\" refused path_invalid\n", "\"odd/link\" refused path_invalid\n", "\"odd/out\" refused path_invalid\n", "\"odd/plain\" 2\n")
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{
		"odd/link", "odd/folderlink/deep",
		"odd/plain/below", "odd/none", "none/at/all", "odd/fifo",
	}},
		"\"odd/link\" refused path_invalid\n", "\"odd/folderlink/deep\" refused path_invalid\n", "\"odd/plain/below\" refused path_invalid\n",
		"\"odd/none\" refused not_found\n", "\"none/at/all\" refused not_found\n", "\"odd/fifo\" refused path_invalid\n")
	for _, name := range []string{
		"", "..", "../outside", "odd/..", "odd/../odd", "/etc", "odd//d",
		"odd/", "./odd", "odd/.", "a\x00b", strings.Repeat("x", 256), strings.Repeat("x/", 2100) + "y",
	} {
		if all, err := readTreeOf(t, f,
			dray.ReadTreeOptions{Names: []string{name}}); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%.40q: got\n%serror %v", name, summary(all), err)
		}
	}
}

// A file is read only with all of its hard links (SY-02).
func readTreeHardLinks(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir hard other; echo in >hard/a; ln hard/a hard/b; echo out >other/x; ln other/x hard/c; echo z >hard/z`)
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"hard"}},
		"\"hard\"/\n", "\"hard/z\" 2\n", "\"hard/a\" 3\n", "\"hard/b\" 3\n", "\"hard/c\" refused path_invalid\n")
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"hard/c", "other"}}, "\"other\"/\n",
		"\"hard/c\" 4\n", "\"other/x\" 4\n")
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"hard/a"}},
		"\"hard/a\" refused path_invalid\n")
}

// Unreadable files are denied (SY-09).
func readTreeDenied(t *testing.T, h FilesHarness, f dray.Files) {
	if h.Shell(t, h.Dir, `id -u`) == "0\n" {
		t.Log("root may read everything")
		return
	}
	h.Shell(t, h.Dir+"/root", `mkdir shut shut/folder shut/closed; echo 1 >shut/file; echo 2 >shut/folder/inside; echo 3 >shut/closed/inside; chmod 0 shut/file shut/closed; chmod 111 shut/folder`)
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"shut", "shut/folder/inside"}},
		"\"shut\"/\n", "\"shut/closed\" refused denied\n", "\"shut/file\" refused denied\n", "\"shut/folder\" refused denied\n")
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{
		"shut/folder/inside",
		"shut/closed/inside",
	}},
		"\"shut/folder/inside\" 2\n", "\"shut/closed/inside\" refused denied\n")
	h.Shell(t, h.Dir+"/root", `chmod 700 shut/closed shut/folder`)
}

// Everything at the limits passes, and nothing beyond (SY-01).
func readTreeLimits(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p caps/1/2/3; for d in caps caps/1 caps/1/2 caps/1/2/3; do printf 1234567890 >$d/f; done`)
	names := []string{"caps"}
	for limits, want := range map[dray.TreeLimits]dray.Code{
		{MaxFile: 10, MaxTotal: 40, MaxFiles: 8, MaxDepth: 3}: "",
		{MaxFile: 10, MaxTotal: 39, MaxFiles: 8, MaxDepth: 3}: dray.CodeLimitExceeded,
		{MaxFile: 10, MaxTotal: 40, MaxFiles: 7, MaxDepth: 3}: dray.CodeLimitExceeded,
		{MaxTotal: 1}: dray.CodeLimitExceeded,
		{MaxFiles: 1}: dray.CodeLimitExceeded,
		{MaxTotal: 1 << 40, MaxFile: 1 << 40, MaxFiles: 1 << 40, MaxDepth: 1 << 40}: "",
	} {
		all, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: names, Limits: limits})
		if dray.CodeOf(err) != want || err == nil && len(all) != 8 {
			t.Errorf("%+v: got\n%serror %v", limits, summary(all), err)
		}
	}
	wantEntries(t, f, dray.ReadTreeOptions{Names: names, Limits: dray.TreeLimits{MaxDepth: 2}},
		"\"caps\"/\n", "\"caps/1\"/\n", "\"caps/1/2\"/\n", "\"caps/1/2/3\"/\n",
		"\"caps/1/2/3/f\" refused limit_exceeded\n", "\"caps/1/2/f\" 10\n", "\"caps/1/f\" 10\n", "\"caps/f\" 10\n")
	wantEntries(t, f, dray.ReadTreeOptions{
		Names: names,
		Limits: dray.TreeLimits{
			MaxFile:  9,
			MaxTotal: 1,
		},
	}, "\"caps\"/\n", "\"caps/1\"/\n", "\"caps/1/2\"/\n", "\"caps/1/2/3\"/\n",
		"\"caps/1/2/3/f\" refused limit_exceeded\n", "\"caps/1/2/f\" refused limit_exceeded\n", "\"caps/1/f\" refused limit_exceeded\n", "\"caps/f\" refused limit_exceeded\n")
}

// Sources beneath another one are read once, and the root itself can be a source.
func readTreeSources(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p src/a/b src/none; echo 1 >src/a/b/f; echo 2 >src/g`)
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{
		"src/g", "src/a/b/f", "src/a", "src/g",
		"src/a/b",
	}},
		"\"src/g\" 2\n", "\"src/a\"/\n", "\"src/a/b\"/\n", "\"src/a/b/f\" 2\n")
	wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"src/none"}}, "\"src/none\"/\n")
	wantEntries(t, f, dray.ReadTreeOptions{})
	all, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: []string{"."}})
	if !slices.ContainsFunc(all,
		func(e readEntry) bool { return e.Name == "src/a/b/f" && string(e.content) == "1\n" }) || err != nil {
		t.Errorf("got\n%serror %v", summary(all), err)
	}
}

// A file of which the caller has a part starts at that offset, unless it has changed.
func readTreePartial(t *testing.T, h FilesHarness, f dray.Files) {
	content := randomBytes(random(t), 600<<10)
	h.Shell(t, h.Dir+"/root", `mkdir resume`)
	write(t, f, "resume/f", content, 0o600)
	what := dray.ReadTreeOptions{Names: []string{"resume/f"}}
	first := wantEntries(t, f, what, "\"resume/f\" 614400\n")
	if len(first) != 1 {
		return
	}
	for at, from := range map[int64]int64{0: 0, 1: 1, 300001: 300001, 614400: 614400, 614401: 0} {
		what.Partial = map[string]dray.PartialFile{"resume/f": {Version: first[0].Version, Bytes: at}}
		all, err := readTreeOf(t, f, what)
		if err != nil || len(all) != 1 || all[0].Offset != from || all[0].Size != 614400 ||
			!bytes.Equal(all[0].content, content[from:]) {
			t.Errorf("from %d: got\n%serror %v", at, summary(all), err)
		}
	}
	what.Partial = map[string]dray.PartialFile{"resume/f": {Version: first[0].Version, Bytes: 1000}}
	h.Shell(t, h.Dir+"/root", `printf x | dd of=resume/f conv=notrunc 2>/dev/null`)
	all, err := readTreeOf(t, f, what)
	if err != nil || len(all) != 1 || all[0].Offset != 0 || all[0].Version == first[0].Version ||
		all[0].content[0] != 'x' {
		t.Errorf("a file that changed: got\n%serror %v", summary(all), err)
	}
}

// A file that changes while it is read ends the tree (SY-09).
func readTreeChanging(t *testing.T, h FilesHarness, f dray.Files) {
	for _, change := range []string{`echo more >>changing/f`, `truncate -s 1000 changing/f`, `printf x | dd of=changing/f conv=notrunc 2>/dev/null`} {
		// larger than all buffers
		h.Shell(t, h.Dir+"/root", `mkdir -p changing; rm -f changing/f; truncate -s 48M changing/f`)
		tree, err := f.ReadTree(t.Context(), dray.ReadTreeOptions{Names: []string{"changing"}})
		for range 2 {
			if err == nil {
				_, err = tree.Next()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		h.Shell(t, h.Dir+"/root", change)
		n, err := io.Copy(io.Discard, tree)
		if dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: got %d bytes, %v", change, n, err)
		}
		if _, err := tree.Next(); dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: then got %v", change, err)
		}
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		if again := h.Open(t, h.Dir+"/root"); !withTimeout(t, 20*time.Second,
			func() bool { return again.Close() == nil }) {
			t.Error("the files cannot be closed")
		}
	}
}

// A closed or cancelled tree ends at once, and so do the files.
func readTreeCancelled(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p large; truncate -s 48M large/f`)
	for name, deadline := range map[string]func(tree dray.Tree, cancel func()){
		"closed":    func(tree dray.Tree, _ func()) { _ = tree.Close() },
		"cancelled": func(_ dray.Tree, cancel func()) { cancel() },
	} {
		files := h.Open(t, h.Dir+"/root")
		ctx, cancel := context.WithCancelCause(t.Context())
		tree, err := files.ReadTree(ctx, dray.ReadTreeOptions{Names: []string{"large"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = tree.Next()
		_, _ = tree.Next()
		_, err = io.CopyN(io.Discard, tree, 1000)
		enough := dray.Errorf(dray.CodeLimitExceeded, "enough")
		deadline(tree, func() { cancel(enough) })
		over := withTimeout(t, 20*time.Second, func() error {
			_, err := io.Copy(io.Discard, tree)
			return err
		})
		if err != nil || over == nil || name == "cancelled" && !errors.Is(over, enough) {
			t.Errorf("%s: got %v and then %v", name, err, over)
		}
		cancel(nil)
		if err := withTimeout(t, 20*time.Second,
			func() error { return errors.Join(tree.Close(), files.Close()) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.ReadTree(ctx, dray.ReadTreeOptions{Names: []string{"large"}}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := f.Stat("large/f"); err != nil {
		t.Errorf("the files fail after a cancelled start: %v", err)
	}
}

// After the end of a tree the files can be used as before.
func readTreeThenMore(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p more; echo 1 >more/a; echo 2 >more/b`)
	for range 3 {
		wantEntries(t, f, dray.ReadTreeOptions{Names: []string{"more"}}, "\"more\"/\n", "\"more/a\" 2\n",
			"\"more/b\" 2\n")
		if got, err := read(f, "more/b", 0); err != nil || string(got) != "2\n" {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := readTreeOf(t, f,
			dray.ReadTreeOptions{Names: []string{".."}}); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("got %v", err)
		}
	}
}

// Whatever is exchanged while a tree is read, nothing comes from outside of the root (SY-02).
func readTreeRace(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir swap swap/real; for i in 1 2 3 4 5 6 7 8; do echo harmless >swap/real/$i; done; ln -s ../../outside swap/away; echo harmless >swap/real/secret`)
	stop := h.Background(t, h.Dir+"/root/swap", `while :; do mv real turn; mv turn real; mv -T away turn; mv -T turn away; done`)
	defer stop()
	seen := map[string]int{}
	deadline := time.Now().Add(time.Minute)
	for seen["file"] < h.Rounds || seen["path_invalid"] < h.Rounds {
		if time.Now().After(deadline) {
			t.Fatalf("seen within a minute: %v", seen)
		}
		all, err := readTreeOf(t, f, dray.ReadTreeOptions{Names: []string{"swap/turn", "swap/real/1"}})
		if code := dray.CodeOf(err); err != nil && code != dray.CodeTransferFailed {
			t.Fatalf("got %v", err)
		}
		for _, e := range all {
			switch {
			case e.Refused != nil:
				seen[string(e.Refused.Code)]++
			case e.Type == "file" && string(e.content) != "harmless\n":
				t.Fatalf("%s has %q", e.Name, e.content)
			default:
				seen[e.Type]++
			}
		}
	}
	for what := range maps.Keys(seen) {
		if !slices.Contains([]string{"file", "directory", "path_invalid", "not_found"}, what) {
			t.Errorf("seen: %v", seen)
		}
	}
}
