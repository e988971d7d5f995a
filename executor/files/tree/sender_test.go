package tree_test

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

func TestSources(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{nil, []string{}},
		{[]string{"a", "b/c", "a"}, []string{"a", "b/c"}},
		{[]string{"a/b", "a", "a/b/c", "ab"}, []string{"a", "ab"}},
		{[]string{"a", "."}, []string{"."}},
	} {
		if got, err := tree.Sources(c.in); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, %v", c.in, got, err)
		}
	}
	for _, bad := range badNames() {
		if got, err := tree.Sources([]string{"a", bad}); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%.40q: got %q, %v", bad, got, err)
		}
	}
}

func badNames() []string {
	return []string{
		"", "/", "/etc", "//etc", "..", "../x", "a/..", "a/../b", "a/./b", "./a", "a/.", "a//b", "a/", "a\x00", "\x00", strings.Repeat("x", 256),
		"a/" + strings.Repeat("x", 256) + "/b", strings.Repeat("x/", 2048) + "y",
	}
}

func TestRequestRoundTrip(t *testing.T) {
	want := dray.ReadTreeOptions{
		Names:   []string{"a", "\xff\n", strings.Repeat("x", 255)},
		Limits:  dray.TreeLimits{MaxFile: 1, MaxTotal: 1 << 62, MaxFiles: 3, MaxDepth: 4},
		Partial: map[string]dray.PartialFile{"a": {Version: "v", Bytes: 7}, "b": {}},
	}
	var b bytes.Buffer
	if err := tree.WriteRequest(&b, want); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	got, err := tree.ReadRequest(bufio.NewReader(bytes.NewReader(whole)))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for i := range whole {
		if _, err := tree.ReadRequest(bufio.NewReader(bytes.NewReader(whole[:i]))); err == nil {
			t.Errorf("%d bytes of %d were enough", i, len(whole))
		}
	}
}
