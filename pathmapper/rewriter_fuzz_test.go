package pathmapper_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/dray-dev/dray/pathmapper"
)

// texts are the seeds of the fuzzers.
var texts = []string{
	"/workspace/a.go:12:3: x\n\t'/workspace/b c/../d' \"/workspace/e\" (/workspace) " +
		"[/workspace/lib/shared/x]",
	"file:///workspace/%61%2fb?c file://localhost/mnt/big%20data/x http://h/workspace " +
		"/workspace/node_modules/x",
	"\x1b[31m\x1b[K/workspace\x1b[m:1 \x1b]8;;file:///workspace/a\x1b\\/workspace/a\x1b]8;;\x1b\\",
	`{"a":"\/workspace\/a","b":"/workspace\n","c":"\"/workspace/x\""} b'/workspace/x' -I/workspace/i`,
	"A=/workspace:/workspace/b,/opt/same;me@h:/workspace C:/workspace </workspace> /workspace... " +
		"/workspace’s",
	"/workspace//lib/./shared/x /workspace/..\x1b[m/a /workspace/a\\ b/.. \"/workspace\"/../x " +
		"+/workspace",
}

// words replace the bytes from 0x80 on, so that a fuzzer combines them.
var words = []string{
	"/workspace", "/workspace/lib/shared", "/workspace/node_modules", "/home/me/app", "/home/me/app/node_modules", "/data", "/mnt/big data", "/opt/same",
	`\/workspace`, `\/home\/me\/app`, "/a", `\/a`, "/..", `\/..`, "/../", "/./", "//", "...", "file://", "file://localhost", "file:", "http://h",
	"\x1b[m", "\x1b[1;31m", "\x1b[K", "\x1b[1A", "\x1b\\", "\x1b]8;;", "‘", "’", "“", "”", "…", "é", "\xff", `\"`, `\n`, "b'", "GET ", "me@h:", "C:", "-I",
	"%2F", "%2e", "%20", "%73", "/mnt/big%20data", "</", "node_modules", "workspace", "evil", strings.Repeat("x", 1000), strings.Repeat("/y", 2000),
}

func spell(text []byte) []byte {
	var b []byte
	for _, c := range text {
		if c < 0x80 {
			b = append(b, c)
		} else {
			b = append(b, words[int(c-0x80)%len(words)]...)
		}
	}
	return b
}

// FuzzRewriterChunks checks that the boundaries of writes make no difference, and that the buffered
// text is bounded (PM-10).
func FuzzRewriterChunks(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text), []byte{1, 2, 3, 200}, true)
		f.Add([]byte(text), []byte{7}, false)
	}
	m := layout(f)
	f.Fuzz(func(t *testing.T, text, cuts []byte, toHost bool) {
		text = spell(text)
		dir := direction(toHost)
		want, paths := m.RewriteText(dir, text)
		var out bytes.Buffer
		r := m.Rewriter(dir, &out)
		for rest, i := text, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			if _, err := r.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			if r.Buffered() > 4096 {
				t.Fatalf("%d bytes are held after %q", r.Buffered(), text[:len(text)-len(rest)+n])
			}
			rest = rest[n:]
		}
		if err := r.Close(); err != nil || out.String() != string(want) || r.Replaced() != paths {
			t.Fatalf("%q\nin pieces became %q, %d paths, %v,\nin one %q, %d", text, out.String(),
				r.Replaced(), err, want, paths)
		}
	})
}

// FuzzRewriterFlush checks that a Flush at any time loses and duplicates nothing, and produces no
// path with ".." (PM-10).
func FuzzRewriterFlush(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text), []byte{1, 2, 3, 200})
	}
	m := layout(f)
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		text = spell(text)
		var out bytes.Buffer
		r := m.Rewriter(pathmapper.ToHost, &out)
		for rest, i := text, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			_, _ = r.Write(rest[:n])
			if err := r.Flush(); err != nil || r.Buffered() > 0 {
				t.Fatal(err, r.Buffered())
			}
			rest = rest[n:]
		}
		_ = r.Close()
		checkRewritten(t, pathmapper.ToHost, text, out.Bytes(), r.Replaced())
	})
}

// comesBack reports whether a container text must be the same after both directions. Unclean roots
// come back clean, host paths are only mapped on the way back, and a long path may become too long.
func comesBack(text []byte) bool {
	for _, other := range []string{"/home", "/srv", "/data", "//", "/.", `/\`, `\/mnt/`, `/mnt\/`, `\/workspace/`, `/workspace\/`, "%", "\x1b", "e:/mnt/", "e:///mnt/", "t/mnt/"} {
		if bytes.Contains(text, []byte(other)) {
			return false
		}
	}
	return len(text) <= 4000
}

// FuzzRewriterRoundTrip checks that container text without host paths is the same after both
// directions (PM-10).
func FuzzRewriterRoundTrip(f *testing.F) {
	m := layout(f)
	for _, text := range []string{
		"/workspace/a.go:12:3: x\n\t'/workspace/b c/d' \"/workspace/e\" (/workspace) " +
			"[/workspace/lib/shared/x] /workspace/node_modules/x",
		"A=/workspace:/workspace/b,/opt/same;me@h:/workspace C:/workspace </workspace> +/workspace " +
			"-I/workspace/i /mnt/big data/x",
		`{"b":"/workspace\n","c":"\"/workspace/x\"","d":"\/workspace"} b'/workspace/x'` + " `/workspace` /workspaceevil",
	} {
		if _, n := m.RewriteText(pathmapper.ToHost, []byte(text)); n == 0 || !comesBack([]byte(text)) {
			f.Fatalf("%q shows nothing: %d paths", text, n)
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = spell(text)
		if !comesBack(text) {
			t.Skip("the text need not come back")
		}
		there, n := m.RewriteText(pathmapper.ToHost, text)
		back, k := m.RewriteText(pathmapper.ToContainer, there)
		if !bytes.Equal(back, text) || n != k {
			t.Fatalf("%q\nbecame %q, %d paths,\nand then %q, %d", text, there, n, back, k)
		}
	})
}

// FuzzRewriterFalse checks that the result differs only in whole roots, as many as were counted
// (PM-01, PM-10).
func FuzzRewriterFalse(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	m := layout(f)
	f.Fuzz(func(t *testing.T, text []byte, toHost bool) {
		text = spell(text)
		given := bytes.Clone(text)
		out, n := m.RewriteText(direction(toHost), text)
		if !bytes.Equal(text, given) {
			t.Fatal("the text itself was changed")
		}
		checkRewritten(t, direction(toHost), text, out, n)
	})
}

func direction(toHost bool) pathmapper.Direction {
	if toHost {
		return pathmapper.ToHost
	}
	return pathmapper.ToContainer
}

// pairs are the roots of layout in each notation, longest first.
var pairs = [][2]string{
	{"/workspace/lib/shared", "/srv/shared"},
	{"/workspace", "/home/me/app"},
	{"/mnt/big data", "/data"},
	{`/workspace\/lib\/shared`, `/srv\/shared`},
	{`/workspace`, `/home\/me\/app`},
	{`/mnt\/big data`, `/data`},
	{"/mnt/big%20data", "/data"},
}

// checkRewritten compares a text with its result, with a simpler form of the rules for the text
// around a root.
func checkRewritten(t *testing.T, dir pathmapper.Direction, before, after []byte, paths int64) {
	t.Helper()
	plain := strings.NewReplacer("file://", "", "http://", "").Replace(string(before))
	// a root may be spelt in ways that this check does not know
	for _, odd := range []string{"//", "/./", "%2", "%7", `/\`} {
		if strings.Contains(plain, odd) {
			return
		}
	}
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		if from, to, ok := rewrittenAt(dir, string(before[i:]), string(after[j:])); ok {
			paths--
			checkSurroundings(t, string(before[:i]), from, string(before[i+len(from):]))
			i, j = i+len(from), j+len(to)
			continue
		}
		if i >= len(before) || j >= len(after) || before[i] != after[j] {
			t.Fatalf("%q\nbecame %q: behind %q", before, after, before[:i])
		}
		i, j = i+1, j+1
	}
	if paths != 0 {
		t.Fatalf("%q\nbecame %q: the count is wrong by %d", before, after, paths)
	}
}

func rewrittenAt(dir pathmapper.Direction, before, after string) (from, to string, ok bool) {
	for _, p := range pairs {
		from, to := p[0], p[1]
		if dir == pathmapper.ToContainer {
			from, to = to, from
		}
		if strings.HasPrefix(before, from) && strings.HasPrefix(after, to) {
			return from, to, true
		}
	}
	return "", "", false
}

func checkSurroundings(t *testing.T, before, root, after string) {
	t.Helper()
	switch {
	case strings.HasSuffix(before, "/") && !strings.HasSuffix(before, "file://"), after != "" &&
		(after[0] == '_' || after[0] == '-' || 'a' <= after[0] && after[0] <= 'z'):
		t.Fatalf("%q was rewritten between %q and %q", root, before, after)
	case strings.HasPrefix(after, "/../"), after == "/..", root == "/workspace" &&
		strings.HasPrefix(after+"/", "/node_modules/"):
		t.Fatalf("%q was rewritten before %q", root, after)
	}
	if i := strings.LastIndexAny(before, " \n\t\x00\"'`<>"); strings.Contains(before[i+1:], "http://") && len(before) < 1000 && !strings.ContainsFunc(before[i+1:], unicode.IsControl) {
		t.Fatalf("%q was rewritten in a URL, behind %q", root, before)
	}
}

// The memory of a Rewriter does not grow with the text (PM-10).
func TestRewriterMemory(t *testing.T) {
	m := layout(t)
	for _, unit := range []string{"/workspace/a.go:1: x\n", "x", "/", " /workspace/", "\x1b[m"} {
		r := m.Rewriter(pathmapper.ToHost, io.Discard)
		chunk := bytes.Repeat([]byte(unit), (64<<10)/len(unit))
		_, _ = r.Write(chunk)
		if n := testing.AllocsPerRun(10, func() { _, _ = r.Write(chunk) }); n > 1 {
			t.Errorf("%q: %v allocations for each piece", unit, n)
		}
	}
}
