package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/fusetest"
)

// linked creates a host directory with a symlink of every kind, and one beside it that must not be
// reached.
func linked(t *testing.T) (root string) {
	t.Helper()
	top := realDir(t)
	root = filepath.Join(top, "app")
	for _, dir := range []string{root + "/build", top + "/outside", top + "/apple"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{root + "/build/out.txt", top + "/outside/secret"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"stays": "build/out.txt", "stays-up": "build/../build/out.txt", "stays-dir": "build", "around": "../app/build/out.txt",
		"own": root + "/build/out.txt", "later": "build/not-yet", "chain": "stays-dir/../stays",
		"passwd": "/etc/passwd", "dir": "../outside", "two": "dir/secret", "neighbour": top +
			"/apple", "up": "..", "top": "/",
		"container": "/ws/build/out.txt", "container-later": "/ws/not-yet", "gone": "../outside/not-yet", "circle": "circle", "magic": "/proc/self/root/etc",
		"cwd": "/proc/self/cwd",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// stays reports for each path of linked whether it stays in the directory.
var stays = map[string]bool{
	"": true, "build": true, "build/out.txt": true, "build/not-yet/x": true, "nothing/here": true, "build/out.txt/x": true,
	"stays": true, "stays-up": true, "stays-dir/out.txt": true, "around": true, "own": true, "later": true, "chain": true,
	"passwd": false, "dir": false, "dir/secret": false, "dir/not-yet": false, "two": false, "neighbour": false, "neighbour/x": false, "up": false,
	"up/outside/secret": false, "top/etc/passwd": false, "container": false, "container-later": false, "gone": false, "circle": false, "circle/x": false,
	"magic/passwd": false, "cwd/x": false,
}

// A path of a result that a symlink on the host leads out of its directory is reported and stays
// raw (PM-12).
func TestSymlinkGuardReportsEscapes(t *testing.T) {
	root := linked(t)
	call := inBox("exec", `{"argv":["a"]}`, "")
	call.Environment = capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/ws",
		Mounts: []dray.Mount{
			{Host: root, Container: "/ws"},
			{Host: filepath.Dir(root) + "/no-such", Container: "/elsewhere"},
		},
	}
	for name, ok := range stays {
		at := strings.TrimSuffix("/ws/"+name, "/")
		_, res, err := through(t, call, string(js(t,
			object{"list": []any{object{"p": at}}, "other": "/elsewhere/x"})))
		if err != nil {
			t.Fatal(err)
		}
		want := object{"list": []any{object{"p": at}}, "other": filepath.Dir(root) + "/no-such/x"}
		if ok {
			want["list"] = []any{object{"p": strings.TrimSuffix(root+"/"+name, "/")}}
		}
		if string(res.Output) != string(js(t, want)) {
			t.Errorf("%s became %s", at, res.Output)
		}
		rep := res.Metadata.Mapping
		switch {
		case ok && (len(rep.Errors) > 0 || len(rep.Mapped) != 2):
			t.Errorf("%s: %+v, want it mapped", at, rep)
		case !ok && (len(rep.Errors) != 1 || rep.Errors[0].Pointer != "/output/list/0/p" ||
			len(rep.Mapped) != 1):
			t.Errorf("%s: %+v, want an error at the path alone", at, rep)
		case !ok && !strings.Contains(rep.Errors[0].Message, root+"/"+name):
			t.Errorf("%s: %q does not say which file of the host is meant", at, rep.Errors[0].Message)
		}
	}
}

// The same holds in lists and URIs (PM-12, PM-09).
func TestSymlinkGuard_ListsAndURIs(t *testing.T) {
	root := linked(t)
	report := defined(t, registry(t), "report", command("report", "", asJSON, func(c *commandTool) {
		c.OutputSchema = json.RawMessage(`{"type":"object","properties":{"list":{"format":"path-list"},"uri":{"format":"file-uri"},"p":{"x-path":true}}}`)
	}))
	printed := `{"list":"/ws/build:/ws/passwd:/bin","uri":"file:///ws/%70asswd","p":"/ws/stays"}`
	next := func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		return dray.Result{Output: json.RawMessage(printed)}, nil
	}
	call := inBox("report", `{}`, "")
	call.Environment = capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/ws",
		Mounts: []dray.Mount{{Host: root, Container: "/ws"}},
	}
	res, err := replaced(report, next).Execute(t.Context(), call, dray.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"list":"/ws/build:/ws/passwd:/bin","uri":"file:///ws/%70asswd","p":"` + root + `/stays"}`; string(res.Output) != want {
		t.Errorf("output %s, want %s", res.Output, want)
	}
	if e := res.Metadata.Mapping.Errors; len(e) != 2 || e[0].Pointer != "/output/list" ||
		e[1].Pointer != "/output/uri" {
		t.Errorf("errors %+v", e)
	}
}

// A path from the caller is not a result: the tool gets the symlink.
func TestSymlinkGuard_IgnoresInputs(t *testing.T) {
	root := linked(t)
	call := inBox("exec", string(js(t, object{"argv": []string{"cat", root + "/container"}})), "")
	call.Environment = capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/ws",
		Mounts: []dray.Mount{{Host: root, Container: "/ws"}},
	}
	seen, _, err := through(t, call)
	if err != nil || string(seen.MappedInput) != `{"argv":["cat","/ws/container"]}` {
		t.Errorf("got %+v, %v", seen, err)
	}
}

// Without openat2 the results are the same, except that a path which leaves the directory and
// returns is refused.
func TestSymlinkGuard_WithoutOpenat2(t *testing.T) {
	root := linked(t)
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, ok := range stays {
		if name == "" || name == "around" || name == "own" {
			continue
		}
		var b SymlinkGuard
		err := b.walk(dir, name)
		fine := err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
		if fine != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tool that describes symlinks may name them; the path to them must stay in the directory.
func TestSymlinkGuard_NamedSymlinks(t *testing.T) {
	root := linked(t)
	b := SymlinkGuard{links: true}
	defer b.Close()
	for name, ok := range map[string]bool{
		"passwd": true, "circle": true, "container": true,
		"dir/secret": false, "up/outside": false,
	} {
		if err := b.Check(t.Context(), root, root+"/"+name); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stat describes any symlink by its name. A path through a symlink that leads out is not mapped
// (PM-12).
func TestStat_EscapingSymlink(t *testing.T) {
	b := newFixture(t)
	b.env = mountedEnv{b.env, []dray.Mount{{Host: linked(t), Container: b.folder}}}
	if err := os.Symlink("/etc/passwd", b.folder+"/passwd"); err != nil {
		t.Fatal(err)
	}
	res := b.call(t, "stat", object{"path": b.folder + "/passwd"})
	succeeded(t, res)
	root := b.env.Capabilities().Mounts[0].Host
	if out := output[statOutput](t, res); out.Path != root+"/passwd" || out.Type != "symlink" ||
		len(res.Metadata.Mapping.Errors) > 0 {
		t.Errorf("%+v, %+v", out, res.Metadata.Mapping)
	}
}

// A path that leads to a server that does not respond is refused, and nothing waits for it (PM-12).
func TestSymlinkGuard_HangingServer(t *testing.T) {
	root, hanging := realDir(t), realDir(t)
	if err := os.Symlink(hanging+"/x", root+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/mounted", 0o700); err != nil {
		t.Fatal(err)
	}
	fusetest.MountHanging(t, hanging)
	fusetest.MountHanging(t, root+"/mounted")
	for _, name := range []string{"/out", "/out/y", "/mounted/x"} {
		done := make(chan error, 1)
		go func() {
			var b SymlinkGuard
			defer b.Close()
			done <- b.Check(t.Context(), root, root+name)
		}()
		select {
		case err := <-done:
			if dray.CodeOf(err) != dray.CodePathInvalid {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the check hangs", name)
		}
	}
}

// A path that cannot be checked is not mapped, and no file stays open.
func TestSymlinkGuard_Unreadable(t *testing.T) {
	root := realDir(t)
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	var b SymlinkGuard
	if err := b.Check(t.Context(), root+"/file", root+"/file/x"); dray.CodeOf(err) != dray.CodePathInvalid ||
		dray.AsError(err).Hint == "" {
		t.Errorf("a root that is no folder: %v", err)
	}
	if err := b.Check(t.Context(), root, root+"/"+strings.Repeat("x",
		300)); dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("a name that no file can have: %v", err)
	}
	for i := range 100 {
		if err := b.Check(t.Context(), root, fmt.Sprint(root, "/", i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
