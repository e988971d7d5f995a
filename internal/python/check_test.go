package python

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// nested returns depth arrays in each other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// repeated returns n items with commas between them.
func repeated(item string, n int) string {
	return strings.TrimSuffix(strings.Repeat(item+",", n), ",")
}

// members returns an object with n members.
func members(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"m%d":%d`, i, i)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// The limits of values are checked again when a reply comes back: each at its bound and one beyond
// it (PY-05).
func TestCheckValue(t *testing.T) {
	tests := map[string]struct {
		value string
		valid bool
	}{
		"null":                      {"null", true},
		"eight levels":              {nested(8), true},
		"nine levels":               {nested(9), false},
		"eight objects":             {strings.Repeat(`{"a":`, 8) + "1" + strings.Repeat("}", 8), true},
		"nine objects":              {strings.Repeat(`{"a":`, 9) + "1" + strings.Repeat("}", 9), false},
		"an empty ninth object":     {strings.Repeat("[", 8) + "{}" + strings.Repeat("]", 8), false},
		"100,000 levels":            {nested(100_000), false},
		"1024 items":                {"[" + repeated("1", 1024) + "]", true},
		"1025 items":                {"[" + repeated("1", 1025) + "]", false},
		"1024 members":              {members(1024), true},
		"1025 members":              {members(1025), false},
		"a member twice":            {`{"a":1,"a":2}`, false},
		"4 MiB":                     {`"` + strings.Repeat("x", MaxValue-2) + `"`, true},
		"more than 4 MiB":           {`"` + strings.Repeat("x", MaxValue-1) + `"`, false},
		"the largest exact integer": {"9007199254740992", true},
		"the next one":              {"9007199254740993", false},
		"the smallest":              {"-9007199254740992", true},
		"the one before":            {"-9007199254740993", false},
		"5,000 digits":              {strings.Repeat("1", 5000), false},
		"a float":                   {"1.7976931348623157e+308", true},
		"an infinite float":         {"1e309", false},
		"NaN":                       {"NaN", false},
		"Infinity":                  {"-Infinity", false},
		"a lone surrogate":          {`"\ud800"`, false},
		"a pair of surrogates":      {`"\ud83d\ude00"`, true},
		"a byte that is no UTF-8":   {"\"\xff\"", false},
		"a control character":       {"\"\x00\"", false},
		"two values":                {"1 2", false},
		"half a value":              {"[1", false},
		"nothing":                   {"", false},
		"a tag":                     {`{"$type":"int","value":"9007199254740993"}`, true},
		"a tag at the ninth level":  {strings.Repeat("[", 8) + `{"$type":"truncated","value":"x"}` + strings.Repeat("]", 8), true},
		"a tag at the tenth level":  {strings.Repeat("[", 9) + `{"$type":"truncated"}` + strings.Repeat("]", 9), false},
		"a frame at the eighth":     {strings.Repeat("[", 7) + `{"$type":"dataframe","value":[[{"$type":"float","value":"NaN"}]]}` + strings.Repeat("]", 7), true},
		"an unknown tag":            {`{"$type":"function"}`, false},
		"a tag that is no text":     {`{"$type":1}`, false},
		"a tag that is not first":   {`{"a":1,"$type":"int"}`, false},
		"endless tags":              {strings.Repeat(`{"$type":"repr","value":`, 99) + "1" + strings.Repeat("}", 99), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"ok":true,"code":0,"value":` + test.value + `,"usage":{"wall_ms":0,"cpu_ms":0,"memory_bytes":0}}`
			r, err := checkReply([]byte(body), nil)
			if (err == nil) != test.valid {
				t.Fatalf("%v", err)
			}
			if err != nil && dray.CodeOf(err) != dray.CodeAgentLost {
				t.Fatalf("the error has the code %s", dray.CodeOf(err))
			}
			if err == nil && string(r.Value) != test.value {
				t.Fatalf("the value became %.99s", r.Value)
			}
		})
	}
}

// The other members of a reply are within what an honest worker says (PY-05, PY-08).
func TestCheckReply(t *testing.T) {
	const usage = `,"usage":{"wall_ms":0,"cpu_ms":0,"memory_bytes":0}}`
	tests := map[string]struct {
		reply string
		valid bool
	}{
		"globals":                    {`{"ok":true,"code":0,"globals":{"a":1},"missing":["b"]` + usage, true},
		"null for absent members":    {`{"ok":true,"code":0,"value":null,"globals":null,"error":null` + usage, true},
		"an unrequested global":      {`{"ok":true,"code":0,"globals":{"c":1}` + usage, false},
		"an unrequested missing one": {`{"ok":true,"code":0,"missing":["c"]` + usage, false},
		"both there and missing":     {`{"ok":true,"code":0,"globals":{"a":1},"missing":["a"]` + usage, false},
		"missing twice":              {`{"ok":true,"code":0,"missing":["a","a"]` + usage, false},
		"globals of 4 MiB":           {`{"ok":true,"code":0,"globals":{"a":"` + strings.Repeat("x", MaxValue/2) + `","b":"` + strings.Repeat("x", MaxValue/2) + `"}` + usage, false},
		"a global that is deep":      {`{"ok":true,"code":0,"globals":{"a":` + nested(9) + `}` + usage, false},
		"an exception":               {`{"ok":false,"code":1,"error":{"message":"m","traceback":"t"}` + usage, true},
		"SystemExit":                 {`{"ok":false,"code":3` + usage, true},
		"a code of python":           {`{"ok":false,"code":1,"error":{"code":"ERR_PAYLOAD_TOO_LARGE","message":"m"}` + usage, true},
		"an unknown code":            {`{"ok":false,"code":1,"error":{"code":"busy","message":"m"}` + usage, false},
		"no success with code 0":     {`{"ok":false,"code":0` + usage, false},
		"success with code 1":        {`{"ok":true,"code":1` + usage, false},
		"success with an error":      {`{"ok":true,"code":0,"error":{"message":"m"}` + usage, false},
		"a code above 255":           {`{"ok":false,"code":256` + usage, false},
		"a negative code":            {`{"ok":false,"code":-1` + usage, false},
		"a code that is no number":   {`{"ok":false,"code":"1"` + usage, false},
		"a fraction":                 {`{"ok":false,"code":1.5` + usage, false},
		"a long message":             {`{"ok":false,"code":1,"error":{"message":"` + strings.Repeat("m", maxMessage+1) + `"}` + usage, false},
		"a long traceback":           {`{"ok":false,"code":1,"error":{"message":"","traceback":"` + strings.Repeat("m", maxTraceback+1) + `"}` + usage, false},
		"negative usage":             {`{"ok":true,"code":0,"usage":{"wall_ms":-1,"cpu_ms":0,"memory_bytes":0}}`, false},
		"endless usage":              {`{"ok":true,"code":0,"usage":{"wall_ms":1e400,"cpu_ms":0,"memory_bytes":0}}`, false},
		"an unknown member":          {`{"ok":true,"code":0,"files":[]` + usage, false},
		"an array":                   {`[]`, false},
		"a million members":          {"{" + repeated(`"x":1`, 1_000_000) + "}", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := checkReply([]byte(test.reply), []string{"a", "b"})
			if (err == nil) != test.valid {
				t.Fatalf("%v", err)
			}
			if err != nil && dray.CodeOf(err) != dray.CodeAgentLost {
				t.Fatalf("the error has the code %s", dray.CodeOf(err))
			}
		})
	}
}

// An accepted reply is JSON, within the limits, and an error repeats nothing of what the worker
// wrote.
func FuzzCheckReply(f *testing.F) {
	f.Add([]byte(okReply))
	f.Add([]byte(`{"ok":false,"code":1,"globals":{"g":[{"$type":"int"}]},"error":{"message":"m"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := checkReply(body, []string{"g"})
		if err != nil {
			if dray.CodeOf(err) != dray.CodeAgentLost || len(err.Error()) > 300 {
				t.Fatalf("%v", err)
			}
			return
		}
		encoded, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := checkReply(encoded, []string{"g"}); err != nil {
			t.Fatalf("the same reply is refused: %v", err)
		}
	})
}
