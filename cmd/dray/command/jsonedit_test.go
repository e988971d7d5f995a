package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

// A member is set, and every other byte of the file stays (MC-01).
func TestSetJSONMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"empty object", "{}", "{\n  \"a\": {\n    \"b\": 1\n  }\n}"},
		{"one line", `{"x": 1}`, `{"x": 1, "a": {"b":1}}`},
		{
			"comments and a trailing comma", "// my file\n{\n\t\"x\": 1, // one\n\t/* two */ \"a\": {\"c\": 2,},\n}\n",
			"// my file\n{\n\t\"x\": 1, // one\n\t/* two */ \"a\": {\"c\": 2, \"b\": 1,},\n}\n",
		},
		{
			"a comment in an empty object", "{\n    // \"a\": {}\n}\n",
			"{\n  \"a\": {\n    \"b\": 1\n  }\n    // \"a\": {}\n}\n",
		},
		{
			"four spaces", "{\n    \"x\": {\n        \"y\": []\n    }\n}\n",
			"{\n    \"x\": {\n        \"y\": []\n    },\n    \"a\": {\n        \"b\": 1\n    }\n}\n",
		},
		{"replaced", `{"a": {"b": {"old": "}//"}, "c": 1}, "z": "\"/*"}`, `{"a": {"b": 1, "c": 1}, "z": "\"/*"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := setJSONMember([]byte(c.text), []byte("1"), "a", "b")
			if err != nil || string(got) != c.want {
				t.Errorf("got %v:\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
}

// What is wrong with a file is named by line and column (MC-01).
func TestSetJSONMemberFails(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[]":                  "1:1: is not an object",
		"{\n  \"a\": []}":     "2:8: is not an object",
		"{\"a\": {\"b\": ":    "the file ends too early",
		"{\n\"a\" 1}":         "2:4: is not JSON",
		"{} // x\n{}":         "2:1: follows the object",
		"{\"a\": 1} /* open ": "follows the object",
	} {
		if _, err := setJSONMember([]byte(text), []byte("1"), "a", "b"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A text that the editor accepts has the member afterwards, and all that it had before (MC-01). The
// reader of devcontainer.json is the judge.
func FuzzSetJSONMember(f *testing.F) {
	for _, seed := range []string{
		"{}", `{"a": {"b": 2}}`, "{// x\n\"a\": {\"c\": [1, {\"d\": \"//\"},],},}", `{"a": {"b": {}, "b": 3}}`,
		"{\r\n\t\"x\": /* , */ 1\r\n}", "{//\r0\n\"\":{}}", `{"\u0061": {}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := setJSONMember([]byte(text), []byte("1"), "a", "b")
		if err != nil {
			return
		}
		before, err := jsonc.Parse([]byte(text))
		if err != nil {
			return // beyond its limits
		}
		after, err := jsonc.Parse(got)
		if err != nil || len(after.Errors) > len(before.Errors) {
			t.Fatalf("%q became %q: %v %v", text, got, err, after.Errors)
		}
		member, _ := before.Value["a"].(map[string]any)
		if member == nil {
			member = map[string]any{}
		}
		member["b"] = 1.0
		before.Value["a"] = member
		want, _ := json.Marshal(before.Value)
		if have, _ := json.Marshal(after.Value); !bytes.Equal(have, want) {
			t.Errorf("%q became %q: has %s, want %s", text, got, have, want)
		}
	})
}
