package pathmapper_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/dray-dev/dray/pathmapper"
)

// BenchmarkRewriter measures texts in pieces of 64 KiB, as they are read from a tool (PM-10).
func BenchmarkRewriter(b *testing.B) {
	m := layout(b)
	for _, c := range []struct{ name, line string }{
		// a build that says what it does, without the workspace's paths
		{
			"build log",
			"2026-02-03T10:11:12.345Z INFO compiling internal/server/handler_%d.go (1.2 KiB) in 3.4 ms, " +
				"12 warnings: see docs/warnings.md\n",
		},
		{"source", "\tif err := run(ctx, \"step %d\"); err != nil { return fmt.Errorf(\"run step: " +
			"%%w\", err) } // one more time\n"},
		{
			"other paths",
			"-rw-r--r-- 1 root root /usr/lib/python3/dist-packages/pkg_%d/module/__init__.py " +
				"/usr/share/doc/x/y/z\n",
		},
		{"no slash", "the quick brown fox jumps over the lazy dog number %d and goes on to the next " +
			"one without looking back\n"},
		{"one path in 4 KiB", strings.Repeat("the quick brown fox jumps over the lazy dog / cat; ", 80) +
			"/workspace/a/b/c_%d.go:12:3\n"},
		{
			"a path in each line",
			"/workspace/internal/server/handler_%d.go:12:3: undefined: something that is not here\n",
		},
	} {
		var text bytes.Buffer
		for i := 0; text.Len() < 4<<20; i++ {
			fmt.Fprintf(&text, c.line, i)
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				rewriteAll(b, m, text.Bytes())
			}
		})
	}
}

func rewriteAll(b *testing.B, m *pathmapper.Mapper, text []byte) {
	b.Helper()
	r := m.Rewriter(pathmapper.ToHost, io.Discard)
	for rest := text; len(rest) > 0; {
		n := min(len(rest), 64<<10)
		if _, err := r.Write(rest[:n]); err != nil {
			b.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRewriterWorst measures the most expensive text. A tool that prints it slows down its own
// call.
func BenchmarkRewriterWorst(b *testing.B) {
	m := layout(b)
	for _, c := range []struct{ name, unit string }{
		{"slashes", "/"},
		{"beginnings", " /workspac"},
		{"a word without end", "=/workspace"},
		{"quotes", "\"/workspace'/workspace `/workspace"},
		{"escaped list", `:\/workspace`},
		{"colours", "\x1b[m/workspace"},
		{"dots", " /workspace/."},
	} {
		text := []byte(strings.Repeat(c.unit, (1<<20)/len(c.unit)))
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				rewriteAll(b, m, text)
			}
		})
	}
}
