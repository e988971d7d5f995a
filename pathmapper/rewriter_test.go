package pathmapper_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// layout is a container with a workspace, a mount in it, a volume, and a second mount.
func layout(t testing.TB) *pathmapper.Mapper {
	t.Helper()
	m, warnings, err := pathmapper.FromMounts([]dray.Mount{
		{Host: "/home/me/app", Container: "/workspace"},
		{Host: "/srv/shared", Container: "/workspace/lib/shared"},
		{Container: "/workspace/node_modules"},
		{Host: "/data", Container: "/mnt/big data"},
		{Host: "/opt/same", Container: "/opt/same"},
	}, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return m
}

// Container paths in text are rewritten to host paths (PM-10).
func TestRewriterToHost(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{name: "nothing", in: "", out: "", paths: 0},
		{"no path", "ok\tmodule/x 0.01s\n", "ok\tmodule/x 0.01s\n", 0},
		{"alone", "/workspace", "/home/me/app", 1},
		{"file", "/workspace/a.go", "/home/me/app/a.go", 1},
		{"line", "/workspace/a.go:12: undefined: x\n", "/home/me/app/a.go:12: undefined: x\n", 1},
		{
			"line and column", "/workspace/a.go:12:3: undefined: x\n",
			"/home/me/app/a.go:12:3: undefined: x\n", 1,
		},
		{"prefix", "vet: /workspace/a.go:12:3: x", "vet: /home/me/app/a.go:12:3: x", 1},
		{"prefix without a space", "error:/workspace/a.go", "error:/home/me/app/a.go", 1},
		{
			"several", "/workspace/a /workspace/b\n/workspace/c",
			"/home/me/app/a /home/me/app/b\n/home/me/app/c", 3,
		},
		{
			"list", "PATH=/usr/bin:/workspace/bin:/workspace/b",
			"PATH=/usr/bin:/home/me/app/bin:/home/me/app/b", 2,
		},
		{
			"mount option", "type=bind,source=/workspace,target=/x",
			"type=bind,source=/home/me/app,target=/x", 1,
		},
		{"NUL", "/workspace/a\x00/workspace/b\x00", "/home/me/app/a\x00/home/me/app/b\x00", 2},
		{"end of a folder", "cd /workspace/ && ls", "cd /home/me/app/ && ls", 1},
		{"nothing is cleaned", "/workspace//a/./b/", "/home/me/app//a/./b/", 1},
		{"bytes that are not UTF-8", "\xff /workspace/\xfe\xff\n", "\xff /home/me/app/\xfe\xff\n", 1},
		{"carriage return", "\r/workspace/a\r\n", "\r/home/me/app/a\r\n", 1},
		{
			"option", "gcc -I/workspace/include -L/workspace/lib",
			"gcc -I/home/me/app/include -L/home/me/app/lib", 2,
		},
		{"option and value", "--file=/workspace/a", "--file=/home/me/app/a", 1},
		{"the same on both sides", "/opt/same/x", "/opt/same/x", 0},
	})
}

func TestRewriterQuotes(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{"double", `File "/workspace/a.py", line 3`, `File "/home/me/app/a.py", line 3`, 1},
		{"single", `make: Entering directory '/workspace'`, `make: Entering directory '/home/me/app'`, 1},
		{"back", "see `/workspace/a`.", "see `/home/me/app/a`.", 1},
		{"as GNU does", "cannot find ‘/workspace/a’", "cannot find ‘/home/me/app/a’", 1},
		{"typographic, a folder", "in “/workspace”", "in “/home/me/app”", 1},
		{"round", "at f (/workspace/a.js:1:7)", "at f (/home/me/app/a.js:1:7)", 1},
		{"square", "[/workspace]", "[/home/me/app]", 1},
		{"angle", "#include </workspace/a.h>", "#include </home/me/app/a.h>", 1},
		{"curly", "{/workspace/a}", "{/home/me/app/a}", 1},
		{"bytes of Python", "b'/workspace/a'", "b'/home/me/app/a'", 1},
		{"in a JSON document", `{"p":"/workspace/a","q":["/workspace"]}`, `{"p":"/home/me/app/a","q":["/home/me/app"]}`, 2},
		{"in a string within a string", `"see \"/workspace/a\"\n\t/workspace/b\n"`, `"see \"/home/me/app/a\"\n\t/home/me/app/b\n"`, 2},
		{"a folder before a line end in a string", `"cd /workspace\n"`, `"cd /home/me/app\n"`, 1},
		{"slashes escaped", `{"file":"\/workspace\/src\/a.php"}`, `{"file":"\/home\/me\/app\/src\/a.php"}`, 1},
		{"slashes escaped, a folder", `["\/workspace"]`, `["\/home\/me\/app"]`, 1},
		{"slashes escaped, longer name", `["\/workspaceevil\/a","\/a\/workspace\/b"]`, `["\/workspaceevil\/a","\/a\/workspace\/b"]`, 0},
		{"white space", `"/workspace/my file"`, `"/home/me/app/my file"`, 1},
		{"a root with white space", `open '/mnt/big data/x'`, `open '/data/x'`, 1},
		{"left open", "it's '/workspace/a\n'", "it's '/home/me/app/a\n'", 1},
		{"entity", "&quot;/workspace&quot;", "&quot;/home/me/app&quot;", 1},
		{"markup", "<td>/workspace/a</td>", "<td>/home/me/app/a</td>", 1},
	})
}

func TestRewriterURIs(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{"file", "file:///workspace/a.mjs:3:1", "file:///home/me/app/a.mjs:3:1", 1},
		{"in brackets", "at (file:///workspace/a.mjs:3:1)", "at (file:///home/me/app/a.mjs:3:1)", 1},
		{"localhost", "file://localhost/workspace/a", "file://localhost/home/me/app/a", 1},
		{"short", "jar:file:/workspace/a.jar!/x", "jar:file:/home/me/app/a.jar!/x", 1},
		{"scheme in capitals", "FILE://LocalHost/workspace", "FILE://LocalHost/home/me/app", 1},
		{"decoded", "file:///work%73pace/%61", "file:///home/me/app/%61", 1},
		{"encoded", "file:///mnt/big%20data/a%20b", "file:///data/a%20b", 1},
		{"slash encoded", "file:///workspace%2Fa", "file:///home/me/app%2Fa", 1},
		{"longer name", "file:///workspace%20evil", "file:///workspace%20evil", 0},
		{"badly encoded", "file:///workspace/%zz", "file:///workspace/%zz", 0},
		{"query", "file:///workspace?x#y", "file:///home/me/app?x#y", 1},
		{
			"link of a terminal", "\x1b]8;;file:///workspace/a\x07a\x1b]8;;\x1b\\/workspace/b",
			"\x1b]8;;file:///home/me/app/a\x07a\x1b]8;;\x1b\\/home/me/app/b", 2,
		},
		{"another host", "file://host/workspace/a", "file://host/workspace/a", 0},
		{"the root as a host", "file://workspace/a", "file://workspace/a", 0},
		{
			"a list of them", "file:///workspace/a,file:///workspace/b",
			"file:///home/me/app/a,file:///home/me/app/b", 2,
		},
		{"another scheme", "git+file:///workspace/a", "git+file:///workspace/a", 0},
		{"climbs", "file:///workspace/../etc", "file:///workspace/../etc", 0},
		{"climbs, encoded", "file:///workspace/%2e%2E/etc", "file:///workspace/%2e%2E/etc", 0},
		{"climbs, slash encoded", "file:///workspace%2f..%2fetc", "file:///workspace%2f..%2fetc", 0},
		{"cut short", "file:///workspace/%2", "file:///workspace/%2", 0},
	})
}

// Text that is not a container path stays unchanged (PM-01, PM-10).
func TestRewriterLeavesOtherText(t *testing.T) {
	for name, text := range map[string]string{
		"a longer name": "/workspaceevil /workspace-2 /workspace.bak /workspace_x " +
			"/workspaceé /workspace\\x /workspace+ /workspace@1",
		"the end of a longer path": "/a/workspace a/workspace ./workspace ~/workspace " +
			"$X/workspace ${X}/workspace *.go/workspace é/workspace",
		"an alias": "import x from '@/workspace/x'; '#/workspace'",
		"a URL": "http://host/workspace/x https://host:80/workspace " +
			"http://workspace/x http:///workspace",
		"within a URL": "http://host/?folder=/workspace " +
			"http://host/a:/workspace/b,/workspace/c",
		"a protocol-relative URL":   "//workspace/x",
		"a path of a server":        "\"GET /workspace/x HTTP/1.1\" 200\nPOST /workspace",
		"a path of another machine": "git@host:/workspace/x.git",
		"Windows":                   `C:/workspace/x D:\workspace\x`,
		"the end of an element":     "<workspace></workspace>",
		"a volume": "/workspace/node_modules /workspace/node_modules/x " +
			"/workspace/node_modules:1:2 '/workspace/node_modules' /workspace//node_modules/x " +
			"/workspace/./node_modules",
		"a volume, encoded": "file:///workspace/node%5Fmodules/x",
		"a path that climbs": "/workspace/../etc/passwd /workspace/.. /workspace/a/../b " +
			"'/workspace/..' (/workspace/..) /workspace/..:1 /workspace/..\x1b[m/x",
		"one that climbs within quotes": `"/workspace/my dir/../../x" "/workspace"/../x '/workspace/a b'/../c`,
		"one that climbs out of color":  "/workspace/\x1b[1m..\x1b[m/x",
		"one that climbs, escaped":      `"\/workspace\/..\/etc" "/workspace\/..\/etc" /workspace/my\ dir/../x`,
		"what follows a quote":          `cd "$HOME"/workspace "${HOME}"/workspace`,
		"a match in a longer name": "\x1b[01;31m\x1b[K/workspace\x1b[m\x1b[Kevil/x " +
			"a\x1b[1m/workspace/x",
		"other folders": "/mnt/big /mnt /work /usr/bin",
	} {
		t.Run(name, func(t *testing.T) { checkRewrite1(t, pathmapper.ToHost, text, text, 0) })
	}
}

func TestRewriterProse(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{"end of a sentence", "It is in /workspace.\n", "It is in /home/me/app.\n", 1},
		{"end of a text", "It is in /workspace.", "It is in /home/me/app.", 1},
		{"going on", "Reading /workspace... done", "Reading /home/me/app... done", 1},
		{"ellipsis", "Reading /workspace…", "Reading /home/me/app…", 1},
		{"comma", "in /workspace, that is", "in /home/me/app, that is", 1},
		{"possessive", "/workspace's files", "/home/me/app's files", 1},
		{"list of packages", "/workspace/...", "/home/me/app/...", 1},
		{
			"diff", "+/workspace/a\n-/workspace/b\n /workspace/c",
			"+/home/me/app/a\n-/home/me/app/b\n /home/me/app/c", 3,
		},
		{"a dash elsewhere", "x -/workspace/a", "x -/workspace/a", 0},
		{"element with text", "</workspace/a>", "</home/me/app/a>", 1},
		{"within a URL's line", "http://host/x /workspace/a", "http://host/x /home/me/app/a", 1},
		{"name with an apostrophe that climbs", "/workspace/it's/../x", "/workspace/it's/../x", 0},
		{"the next path climbs", "/workspace/a:/usr/../b", "/home/me/app/a:/usr/../b", 1},
	})
}

// Sequences that color text are ignored; other sequences separate it (PM-10).
func TestRewriterTerminal(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{
			"grep", "\x1b[35m\x1b[K/workspace/a\x1b[m\x1b[K\x1b[36m\x1b[K:\x1b[m\x1b[K",
			"\x1b[35m\x1b[K/home/me/app/a\x1b[m\x1b[K\x1b[36m\x1b[K:\x1b[m\x1b[K", 1,
		},
		{"a folder", "in \x1b[1m/workspace\x1b[0m:", "in \x1b[1m/home/me/app\x1b[0m:", 1},
		{
			"after a colour", "\x1b[0;31merror: \x1b[0m/workspace/a",
			"\x1b[0;31merror: \x1b[0m/home/me/app/a", 1,
		},
		{
			"quotes in colours", "(\x1b[33m\"\x1b[0m\x1b[33m/workspace/a\x1b[0m\x1b[33m\"\x1b[0m)",
			"(\x1b[33m\"\x1b[0m\x1b[33m/home/me/app/a\x1b[0m\x1b[33m\"\x1b[0m)", 1,
		},
		{"after an erased line", "done\x1b[2K/workspace/a", "done\x1b[2K/workspace/a", 0},
		{"after a moved cursor", "a\x1b[1;1H/workspace/a", "a\x1b[1;1H/home/me/app/a", 1},
		{
			"diff in colour", "\x1b[32m+\x1b[m\x1b[32m/workspace/a\x1b[m",
			"\x1b[32m+\x1b[m\x1b[32m/home/me/app/a\x1b[m", 1,
		},
		{"endless sequence", "\x1b[" + strings.Repeat("1", 40) + "m/workspace/a", "\x1b[" +
			strings.Repeat("1", 40) + "m/workspace/a", 0},
	})
}

// The longest root decides, and a hidden directory is not mapped (PM-04, PM-10).
func TestRewriterRoots(t *testing.T) {
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{"mount within a mount", "/workspace/lib/shared/a:1", "/srv/shared/a:1", 1},
		{"mount within a mount, not clean", "/workspace//lib/./shared/a", "/srv/shared/a", 1},
		{"beside it", "/workspace/lib/sharedx", "/home/me/app/lib/sharedx", 1},
		{"above it", "/workspace/lib", "/home/me/app/lib", 1},
		{"beside a volume", "/workspace/node_modules.bak", "/home/me/app/node_modules.bak", 1},
	})
	checkRewrites(t, pathmapper.ToContainer, []rewriteCase{
		{"file", "/home/me/app/a.go:1:2", "/workspace/a.go:1:2", 1},
		{"other root", "'/data/a b'", "'/mnt/big data/a b'", 1},
		{"URI", "file:///data/a%20b", "file:///mnt/big%20data/a%20b", 1},
		{"escaped", `"\/data\/a"`, `"\/mnt\/big data\/a"`, 1},
		{"hidden by a volume", "/home/me/app/node_modules/x", "/home/me/app/node_modules/x", 0},
		{"hidden by a mount", "/home/me/app/lib/shared:1", "/home/me/app/lib/shared:1", 0},
		{"visible elsewhere", "/srv/shared/a", "/workspace/lib/shared/a", 1},
	})
}

func TestRewriterLimits(t *testing.T) {
	name := func(n int) string { return strings.Repeat("x", n-len("/workspace/")) }
	checkRewrites(t, pathmapper.ToHost, []rewriteCase{
		{"longest", "/workspace/" + name(4095), "/home/me/app/" + name(4095), 1},
		{"too long", "/workspace/" + name(4096), "/workspace/" + name(4096), 0},
		{"too long, and what follows", "/workspace/" + name(9000) + " /workspace", "/workspace/" +
			name(9000) + " /home/me/app", 1},
		{
			"long list", strings.Repeat("/workspace/a.jar:", 300),
			strings.Repeat("/home/me/app/a.jar:", 300), 300,
		},
		{"long quote", `"/workspace/a ` + name(5000), `"/home/me/app/a ` + name(5000), 1},
		{"far behind", strings.Repeat("x", 1023) + "=/workspace", strings.Repeat("x", 1023) +
			"=/home/me/app", 1},
		{"slashes", strings.Repeat("/", 5000) + "workspace", strings.Repeat("/", 5000) + "workspace", 0},
		{
			"nothing but colours", strings.Repeat("\x1b[m", 2000) + "/workspace",
			strings.Repeat("\x1b[m", 2000) + "/workspace", 0,
		},
	})
}

type rewriteCase struct {
	name, in, out string
	paths         int64
}

func checkRewrites(t *testing.T, dir pathmapper.Direction, cases []rewriteCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkRewrite1(t, dir, c.in, c.out, c.paths) })
	}
}

// checkRewrite1 rewrites a text in one write, in writes of one byte (a few for a long one), and in
// two writes with many boundaries.
func checkRewrite1(t *testing.T, dir pathmapper.Direction, in, want string, paths int64) {
	t.Helper()
	m := layout(t)
	if got, n := m.RewriteText(dir, []byte(in)); string(got) != want || n != paths {
		t.Fatalf("%q\n became %q, %d paths\nand not %q, %d", in, got, n, want, paths)
	}
	var single []string
	step := 1 + len(in)/200
	for i := 0; i < len(in); i += step {
		single = append(single, in[i:min(i+step, len(in))])
	}
	ways := [][]string{single}
	for cut := 0; cut < len(in); cut += step {
		ways = append(ways, []string{in[:cut], in[cut:]})
	}
	for _, pieces := range ways {
		if got, n := inPieces(t, m.Rewriter, dir, pieces); got != want || n != paths {
			t.Fatalf("%q became %q, %d paths", pieces, got, n)
		}
	}
}

func inPieces(t *testing.T, rewriter func(pathmapper.Direction, io.Writer) *pathmapper.Rewriter,
	dir pathmapper.Direction, pieces []string,
) (string, int64) {
	t.Helper()
	var out bytes.Buffer
	r := rewriter(dir, &out)
	for _, p := range pieces {
		if n, err := io.WriteString(r, p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := r.Close(); err != nil || r.Buffered() != 0 {
		t.Fatal(err, r.Buffered())
	}
	return out.String(), r.Replaced()
}

// Only the possible beginning of a path is buffered, and Flush writes it unchanged.
func TestRewriterBuffersPossiblePaths(t *testing.T) {
	for _, c := range []struct{ in, passed, then, all string }{
		{"ready> ", "ready> ", "/workspace", "ready> /home/me/app"},
		{"in /work", "in ", "space", "in /workspace"},
		{"in /worm", "in /worm", "", "in /worm"},
		{"50%/work", "50%/work", "space", "50%/workspace"},
		{"/workspace/a: ", "/home/me/app/a: ", "", "/home/me/app/a: "},
		{"/workspace/a", "", "/../b /workspace", "/workspace/a/../b /home/me/app"},
		{"file://local", "file:", "host/workspace", "file://localhost/workspace"},
		{"a|/", "a|", "\b", "a|/\b"},
		{"a\b/", "a\b", "\b-", "a\b/\b-"},
	} {
		var out bytes.Buffer
		r := layout(t).Rewriter(pathmapper.ToHost, &out)
		_, _ = io.WriteString(r, c.in)
		if got := out.String(); got != c.passed || r.Buffered() != len(c.in)-consumed(c.in, c.passed) {
			t.Errorf("%q: passed on %q at once, and held %d bytes", c.in, got, r.Buffered())
		}
		if err := r.Flush(); err != nil || r.Buffered() != 0 {
			t.Error(err, r.Buffered())
		}
		_, _ = io.WriteString(r, c.then)
		if err := r.Close(); err != nil || out.String() != c.all {
			t.Errorf("%q, Flush, %q became %q, %v", c.in, c.then, out.String(), err)
		}
	}
}

// consumed returns how much of a text the output represents.
func consumed(in, passed string) int {
	if strings.HasPrefix(in, passed) {
		return len(passed)
	}
	return len(in)
}

func TestRewriterWriterFails(t *testing.T) {
	r := layout(t).Rewriter(pathmapper.ToHost, full{})
	if n, err := io.WriteString(r, "/workspace/a b"); n != 0 || !errors.Is(err, errFull) {
		t.Error(n, err)
	}
	if _, err := io.WriteString(r, "x"); !errors.Is(err, errFull) {
		t.Error(err)
	}
	if !errors.Is(r.Flush(), errFull) || !errors.Is(r.Close(), errFull) {
		t.Error("Flush and Close forget the error")
	}
}

var errFull = errors.New("writer is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestRewriterWithoutMappings(t *testing.T) {
	var m pathmapper.Mapper
	if got, n := m.RewriteText(pathmapper.ToHost,
		[]byte("/workspace/a")); string(got) != "/workspace/a" || n != 0 {
		t.Error(string(got), n)
	}
}
