package transfer

import (
	"os"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The error of a refusal has its cause, and a hint that helps: errors of the target cannot be
// skipped (SY-09).
func TestRefusalHints(t *testing.T) {
	skip := func(r Request) Request { r.SkipRefused = true; return r }
	tmp := Request{Paths: []string{"/tmp/link", "/tmp/x"}}
	in := func(destination string) Request {
		return skip(Request{Paths: tmp.Paths, Destination: destination})
	}
	for name, tc := range map[string]struct {
		req        Request
		says, hint string
	}{
		"a link":              {tmp, "/tmp/link is refused", "set on_refused to skip"},
		"an odd destination":  {in("a//b"), "a//b is refused", "without a slash at the beginning"},
		"a file in the way":   {in("taken"), "/tmp/x is refused", "choose another destination"},
		"a folder in the way": {in("other"), "/tmp/x is refused", "choose another destination"},
		"a reserved name": {
			Request{Paths: []string{"/tmp/x"}, Destination: ".dray-stage-1"},
			"reserved for dray", "set on_refused to skip",
		},
		"a Windows path": {Request{Paths: []string{`C:\x`}, Dir: "/ws"}, "is a Windows path", "set on_refused to skip"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			w.put("/tmp/x", "x")
			write(t, w.root+"/taken", "a file")
			write(t, w.root+"/other/x/y", "a file in a folder")
			if err := os.Symlink("x", w.box.base+"/tmp/link"); err != nil {
				t.Fatal(err)
			}
			_, err := w.Fetch(t.Context(), w.box, tc.req)
			e := dray.AsError(err)
			if e == nil || e.Code != dray.CodeSyncRefused || !strings.Contains(e.Message, tc.says) ||
				!strings.Contains(e.Hint, tc.hint) {
				t.Errorf("got %+v, hint %q", e, e.Hint)
			}
		})
	}
	w := newFixture(t, func(c *Config) { c.HostRoots = []string{"/srv"} })
	_, err := w.Push(t.Context(), w.box, Request{Paths: []string{"/srv/x"}, Destination: "../x"})
	if e := dray.AsError(err); !strings.Contains(e.Message, `relative to "/ws"`) {
		t.Errorf("got %+v", e)
	}
	r, err := w.Push(t.Context(), w.box, Request{Paths: []string{`C:\x`}, Workspace: t.TempDir()})
	if len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Message, "Windows") {
		t.Errorf("got %+v, %v", r, err)
	}
}
