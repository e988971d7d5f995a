package files_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
	"github.com/dray-dev/dray/executor/files"
)

// A file with more content than its size, as in /proc, is an error.
func TestReadTree_Proc(t *testing.T) {
	for way, f := range openBoth(t, "/proc/self") {
		if got, err := entries(t, f,
			dray.ReadTreeOptions{Names: []string{"status"}}); dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: got %q, %v", way, got, err)
		}
	}
}

// openBoth opens a directory in both ways.
func openBoth(t *testing.T, root string) map[string]dray.Files {
	t.Helper()
	local, err := files.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	helper := serve(t, root)
	if _, err := helper.Stat("."); err != nil { // from here on it opens nothing by itself
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = local.Close(), helper.Close() })
	return map[string]dray.Files{"local": local, "helper": helper}
}

// entries reads a tree and lists its entries.
func entries(t *testing.T, f dray.Files, what dray.ReadTreeOptions) (all []string, err error) {
	t.Helper()
	tree, err := f.ReadTree(t.Context(), what)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }()
	for {
		e, err := tree.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		word := e.Name
		if e.Refused != nil {
			word += ": " + e.Refused.Error()
		}
		all = append(all, word)
		if _, err := io.Copy(io.Discard, tree); err != nil {
			return all, err
		}
	}
}

// Devices and sockets are refused by name and not opened, because opening a device can have effects
// (SY-02).
func TestReadTree_SpecialFiles(t *testing.T) {
	dir := t.TempDir()
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	want := []string{`socket: "socket" is a socket`}
	for name, kind := range map[string]uint32{"block": syscall.S_IFBLK, "char": syscall.S_IFCHR} {
		// No driver has these numbers: opening the devices would fail with another error.
		if err := syscall.Mknod(filepath.Join(dir, name), kind|0o666, 0xee<<8|0xee); err != nil {
			t.Skipf("only root makes devices: %v", err)
		}
		want = append(want, name+`: "`+name+`" is a device`)
	}
	slices.Sort(want)
	for way, f := range openBoth(t, dir) {
		if got, err := entries(t, f, dray.ReadTreeOptions{Names: []string{"."}}); err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v", way, got, err)
		}
	}
}

// However a tree ends, nothing stays open.
func TestReadTreeClosesAllFiles(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "top", strings.Repeat("d/", 40))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", deep, i), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for way, f := range openBoth(t, dir) {
		if way == "helper" {
			continue // it cannot be used again once a tree was given up
		}
		before := open(t)
		for _, stop := range []int{0, 1, 20, 45, 100, 1000} {
			for _, limit := range []int{0, 60} {
				tree, err := f.ReadTree(t.Context(),
					dray.ReadTreeOptions{Names: []string{"top", "none"}, Limits: dray.TreeLimits{MaxFiles: limit}})
				for range stop {
					if err == nil {
						_, err = tree.Next()
					}
				}
				if err := tree.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if after := open(t); after != before {
			t.Errorf("%s: %d descriptors were open before, and %d after", way, before, after)
		}
	}
}

func open(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Ten thousand files are read, and not one more (SY-01).
func TestReadTree_MaxFiles(t *testing.T) {
	dir := t.TempDir()
	const count = 10000
	for i := range count {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for way, f := range openBoth(t, dir) {
		got, err := entries(t, f, dray.ReadTreeOptions{
			Names:  []string{"."},
			Limits: dray.TreeLimits{MaxFiles: count},
		})
		if err != nil || len(got) != count || !slices.IsSorted(got) {
			t.Errorf("%s: got %d, %v", way, len(got), err)
		}
		got, err = entries(t, f, dray.ReadTreeOptions{
			Names:  []string{"."},
			Limits: dray.TreeLimits{MaxFiles: count - 1},
		})
		if dray.CodeOf(err) != dray.CodeLimitExceeded {
			t.Errorf("%s: got %d, %v", way, len(got), err)
		}
	}
}

// A path longer than the kernel's limit ends the tree.
func TestReadTree_LongPath(t *testing.T) {
	dir := t.TempDir()
	executortest.DeepDir(t, dir, strings.Repeat("x", 250), 18)
	for way, f := range openBoth(t, dir) {
		got, err := entries(t, f, dray.ReadTreeOptions{Names: []string{"."}})
		if dray.CodeOf(err) != dray.CodeLimitExceeded || len(got) != 16 {
			t.Errorf("%s: got %d, %v", way, len(got), err)
		}
	}
}

// While a tree is open, other operations of a helper fail with conflict.
func TestOpenTreeExcludesOtherOperations(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir)
	defer func() { _ = c.Close() }()
	tree, err := c.ReadTree(t.Context(), dray.ReadTreeOptions{Names: []string{"f"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat("f"); dray.CodeOf(err) != dray.CodeConflict {
		t.Errorf("got %v", err)
	}
	if _, err := c.ReadTree(t.Context(),
		dray.ReadTreeOptions{Names: []string{"f"}}); dray.CodeOf(err) != dray.CodeConflict {
		t.Errorf("got %v", err)
	}
	for err == nil {
		_, err = tree.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Stat("f"); err != nil {
		t.Errorf("after the tree: %v", err)
	}
}

// A helper that sends an invalid tree, or bytes after it, is not used any more (SY-07).
func TestReadTree_InvalidStream(t *testing.T) {
	const done = "drt1D\x01a\xed\x03Z\x01\x00"
	for name, stream := range map[string]string{
		"nonsense": "\x00\x00\x00\x00", "nothing": "",
		"cut": done[:8], "more": done + "more", "another's": strings.Replace(done, "a", "b", 1),
	} {
		c := files.NewClient(io.Discard, io.MultiReader(strings.NewReader(encodedResponse(t)),
			strings.NewReader(stream)), func() error { return nil })
		got, err := entries(t, c, dray.ReadTreeOptions{Names: []string{"a"}})
		if name != "more" && dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if _, err := c.Stat("a"); err == nil {
			t.Errorf("%s: another operation was possible", name)
		}
	}
}

// encodedResponse returns the response before a tree.
func encodedResponse(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	if err := files.Serve(t.TempDir(), strings.NewReader(encodedRequest(t)), &out); err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(out.String(), "drt1")
	if !found {
		t.Fatalf("the helper sent %q", out.String())
	}
	return before
}

// encodedRequest returns the request of a tree.
func encodedRequest(t *testing.T) string {
	t.Helper()
	var sent strings.Builder
	c := files.NewClient(&sent, strings.NewReader(""), func() error { return nil })
	if _, err := c.ReadTree(t.Context(), dray.ReadTreeOptions{Names: []string{"a"}}); err == nil {
		t.Fatal("there is no helper, and no error")
	}
	return sent.String()
}
