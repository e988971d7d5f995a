package dray_test

import (
	"testing"

	"github.com/dray-dev/dray"
)

// The states of two sessions have the same digest exactly if they are the same, also in bytes that
// are not UTF-8 (SE-04).
func TestSessionState_Digest(t *testing.T) {
	state := func(path string) dray.SessionState {
		return dray.SessionState{Name: "s", Set: map[string]string{"PATH": path, "A": "b"}}
	}
	seen := map[string]string{}
	for name, s := range map[string]dray.SessionState{
		"ff": state("/tmp/\xff"), "fe": state("/tmp/\xfe"), "replaced": state("/tmp/\uFFFD"),
		"escaped": state(`/tmp/\xff`), "quoted": state("x\" \"B\":\"c"),
		"cwd":      {Name: "s", Cwd: "/tmp/\xff"},
		"unset":    {Name: "s", Unset: []string{"PATH", "A"}},
		"one name": {Name: "s", Unset: []string{`PATH" "A`}},
		"function": {Name: "s", Functions: map[string]string{"bash": "f() { :; }"}},
	} {
		if other, ok := seen[s.Digest()]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[s.Digest()] = name
	}
	if same := (dray.SessionState{Name: "s", Functions: map[string]string{"bash": ""}}); same.Digest() !=
		(dray.SessionState{Name: "s"}).Digest() {
		t.Error("functions that are empty change the digest")
	}
}
