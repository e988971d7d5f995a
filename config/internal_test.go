package config

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/dray-dev/dray/internal/lexical"
)

// A YAML schema in JSON has the same order of keys, digits of numbers and strings.
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
			d := newDecoder(&r)
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
			t.Errorf("closest to %q is %q, want %q", tt.name, got, tt.want)
		}
	}
}

// No two settings have the same variable, and none is that of an entry of another setting.
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

// A directory of another user is refused, whichever user runs the test.
func TestCheckStateOwner(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{State: "/s"}
	if err := c.checkState(info, os.Geteuid()+1); err == nil {
		t.Error("no error for the directory of another user")
	}
}
