package tool

import (
	"strings"
	"testing"
	"time"
)

func TestGlobPattern(t *testing.T) {
	for _, tt := range []struct{ pattern, yes, no string }{
		{"*", "a a.go .hidden \xff", "a/b"},
		{"*.go", "a.go .go", "a/b.go a.gone"},
		{"**", "a a/b a/b/.c", ""},
		{"**/*.go", "a.go a/b.go a/b/c.go .x/y.go", "a a.go/x"},
		{"./a/*", "a/b", "a a/b/c"},
		{"a/**", "a a/b a/b/c", "ab b/a"},
		{"a/**/z", "a/z a/b/z a/b/c/z", "a/b z"},
		{"?", "a ü", "ab /"},
		{"[a-c]x", "ax cx", "dx"},
		{"[!a]", "b", "a"},
		{"{a,b/c}.{go,rs}", "a.go b/c.rs", "b.go c.rs"},
		{`\*`, "*", "a"},
		{"ä*", "äb", "a"},
		{"a/", "", "a"},
	} {
		g, err := newGlob(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for name := range strings.FieldsSeq(tt.yes) {
			if !g.matches(name, "file") {
				t.Errorf("%s does not match %q", tt.pattern, name)
			}
			for i := range name {
				if name[i] == '/' && !g.mayContainMatch(name[:i]) {
					t.Errorf("%s matches %q, and %q is passed over", tt.pattern, name, name[:i])
				}
			}
		}
		for name := range strings.FieldsSeq(tt.no) {
			if g.matches(name, "file") {
				t.Errorf("%s matches %q", tt.pattern, name)
			}
		}
	}
	for pattern, want := range map[string]string{
		"/etc/*": "absolute", "../*": `".."`, "a/../b": `".."`, "a\x00": "NUL", "[": "malformed", "{a": "malformed", `a\`: "malformed", "": "nothing", "./": "nothing",
		strings.Repeat("x", 1001): "1000 bytes", strings.Repeat("{a,b}",
			10): "braces", strings.Repeat("{a,{b,c}}", 7): "braces",
	} {
		if _, err := newGlob(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q gave %v, want %q", pattern, err, want)
		}
	}
	if g, err := newGlob("sub*/"); err != nil || !g.matches("subs", "directory") ||
		g.matches("subs", "file") {
		t.Errorf("a slash at the end: %+v, %v", g, err)
	}
}

// Directories that cannot contain a match are not entered.
func TestGlobMayContainMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, folder string
		want            bool
	}{
		{"src/**/*.go", "src", true},
		{"src/**/*.go", "src/a", true},
		{"src/**/*.go", "srcs", false},
		{"src/**/*.go", "vendor", false},
		{"src/{a,b}/*.go", "src/c", true}, // it could be known, and is not worth the work
		{"*.go", "a", false},
		{"*/*.go", "a", true},
		{"*/*.go", "a/b", false},
		{"a*/b*/c", "ax/x", false},
		{"**", "a/b/c", true},
	} {
		g, err := newGlob(tt.pattern)
		if err != nil || g.mayContainMatch(tt.folder) != tt.want {
			t.Errorf("%s in %s: got %v, %v", tt.pattern, tt.folder, !tt.want, err)
		}
	}
}

func TestCountBraceExpansions(t *testing.T) {
	for pattern, want := range map[string]int{
		"a": 1, "{a,b}": 2, "{a,b}{c,d,e}": 6, "{a,{b,c}d}": 3, `\{a\,b\}`: 1, "[{,]a": 1, "a,b": 1, strings.Repeat("{a,b}", 400): maxAlternatives + 1,
	} {
		if got := countBraceExpansions(pattern); got != want {
			t.Errorf("%.20s stands for %d, want %d", pattern, got, want)
		}
	}
}

// FuzzGlobPattern: every pattern matches in bounded time.
func FuzzGlobPattern(f *testing.F) {
	f.Add("**/a*b*c*{d,e}[f-g]", "a/b/aaaabbbbccccdf")
	f.Add("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}c", "aaaaaaaaab")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := newGlob(pattern)
		if err != nil || len(name) > 4096 {
			return
		}
		done := make(chan bool)
		go func() { g.matches(name, "file"); g.mayContainMatch(name); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("it takes too long")
		}
	})
}
