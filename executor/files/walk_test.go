package files

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// Steps of a helper that are not in the order of a walk are refused.
func TestOrderChecker(t *testing.T) {
	dir := func(depth int,
		name string,
	) step {
		return step{depth, dray.FileInfo{Name: name, Type: "directory"}}
	}
	file := func(depth int,
		name string,
	) step {
		return step{depth, dray.FileInfo{Name: name, Type: "file"}}
	}
	closed := dir(1, "closed")
	closed.info.Refused = dray.Errorf(dray.CodeDenied, "closed")
	long := []step{}
	for depth := range maxDepth + 2 {
		long = append(long, dir(depth, "d"))
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"a walk", []step{
			dir(0, "."), dir(1, "a"), file(2, "x"), file(2, "y\n\xff"), dir(1, "b"),
			file(2, "a"), file(1, "c"),
		}, ""},
		{"a file alone", []step{file(0, "a")}, ""},
		// it is not used
		{"an outside name at the start", []step{dir(0, "../x"), file(1, "a")}, ""},
		{"twice", []step{dir(0, "."), file(1, "a"), file(1, "a")}, "follows"},
		{"out of order", []step{dir(0, "."), dir(1, "b"), file(2, "x"), dir(1, "a")}, "follows"},
		{"below a file", []step{dir(0, "."), file(1, "a"), file(2, "x")}, "depth"},
		{"below a file alone", []step{file(0, "a"), file(1, "x")}, "depth"},
		{"below a refused directory", []step{dir(0, "."), closed, file(2, "x")}, "depth"},
		{"two at once", []step{dir(0, "."), file(2, "x")}, "depth"},
		{"not from the start", []step{dir(1, "a")}, "depth"},
		{"a second start", []step{dir(0, "."), dir(0, "b")}, "repeated"},
		{"above the start", []step{dir(0, "."), dir(-1, "b")}, "depth"},
		{"a parent", []step{dir(0, "."), file(1, "..")}, "name"},
		{"a path", []step{dir(0, "."), file(1, "a/b")}, "name"},
		{"an absolute path", []step{dir(0, "."), file(1, "/etc")}, "name"},
		{"no name", []step{dir(0, "."), file(1, "")}, "name"},
		{"NUL", []step{dir(0, "."), file(1, "a\x00")}, "name"},
		{"no type", []step{{0, dray.FileInfo{Name: "."}}}, "type"},
		{"too deep", long, "depth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var walk orderChecker
			var err error
			for i, s := range tt.steps {
				if err = walk.check(s); err != nil && i != len(tt.steps)-1 {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Pseudo file systems are visited and not entered, unless the walk starts there.
func TestWalk_PseudoFileSystems(t *testing.T) {
	l, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	refused := map[string]bool{}
	err = l.Walk(t.Context(), ".", func(name string, info dray.FileInfo) error {
		if name != "." && info.Type == "directory" {
			refused[name] = info.Refused != nil && info.Refused.Code == dray.CodePathInvalid
			return fs.SkipDir
		}
		return nil
	})
	if err != nil || !refused["proc"] || !refused["sys"] || refused["etc"] {
		t.Errorf("refused: %v, %v", refused, err)
	}
	seen := 0
	err = l.Walk(t.Context(), "proc/self/net",
		func(string, dray.FileInfo) error { seen++; return nil })
	if err != nil || seen < 2 {
		t.Errorf("begun in there it saw %d, %v", seen, err)
	}
}

func TestWalk_ContextEnds(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = l.Walk(ctx, ".", func(string, dray.FileInfo) error { cancel(over); return nil })
	if !errors.Is(err, over) {
		t.Errorf("got %v", err)
	}
}
