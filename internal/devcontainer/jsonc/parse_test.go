package jsonc_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

type object = map[string]any

// oddDocuments are what people and tools leave behind. A nil value means that the document is
// refused.
var oddDocuments = []struct {
	name, text string
	value      object
}{
	{"plain", `{"image": "a", "n": 1.5, "t": true, "f": false, "z": null, "l": [1, "two", {}]}`, object{"image": "a", "n": 1.5, "t": true, "f": false, "z": nil, "l": []any{1.0, "two", object{}}}},
	{"empty object", `{}`, object{}},
	{"byte order mark", "\ufeff{\"a\": 1}", object{"a": 1.0}},
	{"line comment", "// top\n{\"a\": 1 // end\n}", object{"a": 1.0}},
	{"block comment", `/* top */ {"a": /* in */ 1} /* end */`, object{"a": 1.0}},
	{"comment ends at carriage return", "// top\r{\"a\": 1}", object{"a": 1.0}},
	{"comment in a string", `{"a": "http://x/*y*/"}`, object{"a": "http://x/*y*/"}},
	{"unterminated comment", `{"a": 1} /* what`, object{"a": 1.0}},
	{"unterminated comment inside", `{"a": 1, /* what }`, object{"a": 1.0}},
	{"comment of three characters", `{"a": 1} /*/`, object{"a": 1.0}},
	{"lone slash", `{"a": / 1}`, object{"a": 1.0}},
	{"trailing comma", `{"a": 1,}`, object{"a": 1.0}},
	{"trailing comma in array", `{"a": [1, 2,]}`, object{"a": []any{1.0, 2.0}}},
	{"missing comma", "{\"a\": 1\n \"b\": 2}", object{"a": 1.0, "b": 2.0}},
	{"missing comma in array", `{"a": [1 2 "x"]}`, object{"a": []any{1.0, 2.0, "x"}}},
	{"double comma", `{"a": 1,, "b": 2}`, object{"a": 1.0, "b": 2.0}},
	{"double comma in array", `{"a": [1,, 2]}`, object{"a": []any{1.0, 2.0}}},
	{"leading comma", `{, "a": 1}`, object{"a": 1.0}},
	{"missing brace", `{"a": 1`, object{"a": 1.0}},
	{"missing braces", `{"a": {"b": [1, {"c": 2`, object{"a": object{"b": []any{1.0, object{"c": 2.0}}}}},
	{"open brace alone", `{`, object{}},
	{"trailing garbage", `{"a": 1} } what ever`, object{"a": 1.0}},
	{"second object", `{"a": 1} {"b": 2}`, object{"a": 1.0}},
	{"leading garbage", `what ever {"a": 1}`, object{"a": 1.0}},
	{"last duplicate", `{"a": 1, "b": 2, "a": 3}`, object{"a": 3.0, "b": 2.0}},
	{"duplicate objects are not merged", `{"a": {"x": 1}, "a": {"y": 2}}`, object{"a": object{"y": 2.0}}},
	{"keys have case", `{"Image": 1, "image": 2}`, object{"Image": 1.0, "image": 2.0}},
	{"empty key", `{"": 1}`, object{"": 1.0}},
	{"raw tab", "{\"a\": \"x\ty\"}", object{"a": "x\ty"}},
	{"raw control character", "{\"a\": \"x\x01y\"}", object{"a": "x\x01y"}},
	{"string ends at line break", "{\"a\": \"x\n, \"b\": 2}", object{"a": "x", "b": 2.0}},
	{"string ends at end of file", `{"a": "x`, object{"a": "x"}},
	{"backslash at end of file", `{"a": "x\`, object{"a": "x"}},
	{"escapes", `{"a": "\"\\\/\b\f\n\r\t\u00e9"}`, object{"a": "\"\\/\b\f\n\r\té"}},
	{"unknown escape", `{"a": "x\qy"}`, object{"a": "xy"}},
	{"escaped line break", "{\"a\": \"x\\\ny\"}", object{"a": "xy"}},
	{"escaped emoji", `{"a": "x\😀y"}`, object{"a": "x\ufffdy"}},
	{"short unicode escape", `{"a": "x\u12y"}`, object{"a": "xy"}},
	{"surrogate pair", `{"a": "\ud83d\ude00"}`, object{"a": "😀"}},
	{"lone surrogates", `{"a": "\ud83dx\ude00"}`, object{"a": "\ufffdx\ufffd"}},
	{"surrogates that an unknown escape divides", `{"a": "\ud83d\q\ude00"}`, object{"a": "😀"}},
	{"single quotes", `{'a': 1, "b": 2}`, object{"b": 2.0}},
	{"unquoted key", `{a: 1, "b": 2}`, object{"b": 2.0}},
	{"missing colon", `{"a" 1, "b": 2}`, object{"b": 2.0}},
	{"missing value", `{"a": , "b": 2}`, object{"b": 2.0}},
	{"missing last value", `{"a": }`, object{}},
	{"unknown word as a value", `{"a": undefined, "b": 2}`, object{"b": 2.0}},
	{"word with capital", `{"a": True, "b": 2}`, object{"b": 2.0}},
	{"bracket for brace", `{"a": [1, 2}, "b": 3}`, object{"a": []any{1.0, 2.0, "b"}}},
	{"leading zero", `{"a": 01, "b": 2}`, object{"a": 0.0, "b": 2.0}},
	{"point without digits", `{"a": 1., "b": 2}`, object{"a": 1.0, "b": 2.0}},
	{"exponent without digits", `{"a": 1e+, "b": 2}`, object{"a": 1.0, "b": 2.0}},
	{"plus sign", `{"a": +1}`, object{}},
	{"lone minus", `{"a": -, "b": 2}`, object{"b": 2.0}},
	{"negative", `{"a": -1.5e-3}`, object{"a": -1.5e-3}},
	{"hexadecimal", `{"a": 0x10, "b": 2}`, object{"a": 0.0, "b": 2.0}},
	{"infinite", `{"a": 1e999}`, object{"a": math.Inf(1)}},
	{"form feed", "{\f\"a\": 1}", object{"a": 1.0}},
	{"other line separator", "{\"a\": \"x\u2028y\"}", object{"a": "x\u2028y"}},
	{"prototype", `{"__proto__": {"image": "evil"}, "a": 1}`, object{"a": 1.0}},
	{"other names of JavaScript", `{"constructor": 1, "toString": {}}`, object{"constructor": 1.0, "toString": object{}}},
	{"array", `[{"a": 1}]`, nil},
	{"array in disguise", `what [1]`, nil},
	{"empty", ``, nil},
	{"blank", " \n\t", nil},
	{"comment only", "// nothing\n/* at all */", nil},
	{"byte order mark only", "\ufeff", nil},
	{"string", `"a"`, nil},
	{"number", `1`, nil},
	{"null", `null`, nil},
	{"string before the object", `"x" {"a": 1}`, nil},
	{"comma before the object", `, {"a": 1}`, nil},
	{"closing brace before the object", `} {"a": 1}`, nil},
}

func TestParse(t *testing.T) {
	for _, test := range oddDocuments {
		t.Run(test.name, func(t *testing.T) {
			doc, err := jsonc.Parse([]byte(test.text))
			if (err != nil) != (test.value == nil) {
				t.Fatalf("error %v, want a value %v", err, test.value)
			}
			if err == nil && !reflect.DeepEqual(doc.Value, test.value) {
				t.Errorf("got %#v, want %#v", doc.Value, test.value)
			}
		})
	}
}

func TestErrorsHavePositions(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"a\": 1\n  \"b\": 2\n}":     "line 3, column 3: a comma was expected here",
		"{\"é\" 1}":                        "line 1, column 6: a colon was expected here",
		"{\r\n  \"a\": \"x\r\n}":           "line 2, column 8: the string is not closed",
		"{\"a\": 1":                        "line 1, column 8: the closing brace is missing",
		"{\"a\": 1}\n}":                    "line 2, column 1: what follows the closing brace is ignored",
		"{\"a\": yes}":                     "line 1, column 7: this means nothing here",
		"{\"a\": 1} /* x":                  "line 1, column 10: the comment is not closed",
		"{\"a\": 1, // fine\n\"b\": [1,]}": "",
	} {
		doc, err := jsonc.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		got := ""
		if len(doc.Errors) > 0 {
			got = doc.Errors[0].Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestParse_FailureHasPosition(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "line 1, column 1: the file holds no value, only blank space or comments",
		"// x\n":           "line 2, column 1: the file holds no value, only blank space or comments",
		"\n  [1]":          "line 2, column 3: the file must hold an object, not an array",
		" null":            "line 1, column 2: the file must hold an object, not null",
		"\n\n]":            "line 3, column 1: an object was expected here",
		deep(`{"a":`):      "line 1, column 1001: the nesting is deeper than 200",
		deep(`[`):          "line 1, column 201: the nesting is deeper than 200",
		deep(`{"a":[1, [`): "line 1, column 670: the nesting is deeper than 200",
	} {
		_, err := jsonc.Parse([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

func deep(open string) string { return strings.Repeat(open, 90_000) }

func TestLimits(t *testing.T) {
	fits := `{"a":"` + strings.Repeat("x", jsonc.MaxBytes-8) + `"}`
	if doc, err := jsonc.Parse([]byte(fits)); err != nil || len(doc.Value) != 1 {
		t.Errorf("a document of exactly the limit: %v", err)
	}
	if _, err := jsonc.Parse([]byte(fits + " ")); err == nil ||
		!strings.Contains(err.Error(), "larger than") {
		t.Errorf("a document over the limit: %v", err)
	}
	doc, err := jsonc.Parse([]byte("{" + strings.Repeat("x ", 100_000) + "}"))
	if err != nil || len(doc.Errors) != 16 {
		t.Errorf("%d faults are kept, want 16; error %v", len(doc.Errors), err)
	}
	atDepth := strings.Repeat(`{"a":`, jsonc.MaxDepth)
	if _, err := jsonc.Parse([]byte(atDepth)); err != nil {
		t.Errorf("nesting of exactly the limit: %v", err)
	}
}

func TestParse_InvalidUTF8(t *testing.T) {
	doc, err := jsonc.Parse([]byte("{\"a\": \"x\xff\xfey\"}"))
	if err != nil || doc.Value["a"] != "x\ufffd\ufffdy" {
		t.Errorf("got %q, %v", doc.Value["a"], err)
	}
}

func FuzzParse(f *testing.F) {
	for _, odd := range oddDocuments {
		f.Add([]byte(odd.text))
	}
	f.Add([]byte(deep("[")))
	f.Fuzz(func(t *testing.T, src []byte) {
		doc, err := jsonc.Parse(src)
		if err != nil {
			if doc.Value != nil {
				t.Errorf("a value beside the error %v", err)
			}
			return
		}
		if doc.Value == nil || len(doc.Errors) > 16 {
			t.Errorf("value %v with %d faults", doc.Value, len(doc.Errors))
		}
	})
}
