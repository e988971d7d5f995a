package config

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/dray-dev/dray/internal/lexical"
)

// What a schema says in YAML it says in JSON: the order of its keys, the digits of its numbers, the
// text of its strings.
func TestJSONObject(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"order of keys", "{z: 1, a: 2, m: {y: 1, b: 2}}", `{"z":1,"a":2,"m":{"y":1,"b":2}}`},
		{"integers keep their digits", "{a: 9007199254740993, b: 123456789012345678901234567890, c: -0}", `{"a":9007199254740993,"b":123456789012345678901234567890,"c":-0}`},
		{"other notations of integers", "{a: 0x1F, b: 0o17, c: 0b101, d: 1_000, e: +5, f: -0x10}", `{"a":31,"b":15,"c":5,"d":1000,"e":5,"f":-16}`},
		{"fractions", "{a: 0.10, b: 1e3, c: .5, d: 1., e: +1.5}", `{"a":0.10,"b":1e3,"c":0.5,"d":1,"e":1.5}`},
		{"words", "{a: true, b: True, c: null, d: ~, e: yes, f: }", `{"a":true,"b":true,"c":null,"d":null,"e":"yes","f":null}`},
		{"texts", `{a: "<&>\u2028\"\n", b: "1", c: 2024-01-02, d: 'it''s'}`, `{"a":"<&>\u2028\"\n","b":"1","c":"2024-01-02","d":"it's"}`},
		{"lists", "{a: [], b: [1, [x], {}]}", `{"a":[],"b":[1,["x"],{}]}`},
		{"keys that are no words", "{200: a, true: b, '': c}", `{"200":"a","true":"b","":"c"}`},
		{"JSON itself", `{"type": "object", "properties": {"p": {"format": "path"}}}`, `{"type":"object","properties":{"p":{"format":"path"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r diagnostics
			v, ok := yamlReader{&r, func(int, int) Origin { return Origin{} }}.read([]byte(tt.yaml),
				"schema")
			d := &decoder{diagnostics: &r, c: &Config{origins: map[string]Origin{}}}
			got := d.jsonObject(v)
			if !ok || r.err() != nil {
				t.Fatal(r.err())
			}
			if string(got) != tt.want || !json.Valid(got) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestSuggestions(t *testing.T) {
	tests := []struct {
		name string
		want string
	}{
		{"timeout", "timeout"},
		{"tiemout", "timeout"},
		{"time-out", "timeout"},
		{"Timeouts", "timeout"},
		{"maxTimeout", "max_timeout"},
		{"veiw", "view"},
		{"viw", "view"},
		{"x", ""},
		{"", ""},
		{"completely", ""},
	}
	for _, tt := range tests {
		if got := lexical.Closest(tt.name, namesIn("limits", true)); got != tt.want {
			t.Errorf("nearest to %q is %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Variables are unambiguous: no two settings share one, and none is taken for an entry of another.
func TestVariablesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, s := range settings {
		name := envVarName(s.key)
		if other, ok := seen[name]; ok {
			t.Errorf("%s is the variable of %s and %s", name, other, s.key)
		}
		if _, ok := parseEntryVar(name); ok || isReservedVar(name) {
			t.Errorf("%s, the variable of %s, has another meaning", name, s.key)
		}
		seen[name] = s.key
	}
}

// The folder of another user is refused whoever runs the test.
func TestCheckStateOwner(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{State: "/s"}
	if err := c.checkState(info, os.Geteuid()+1); err == nil {
		t.Error("a folder of another user was accepted")
	}
}
