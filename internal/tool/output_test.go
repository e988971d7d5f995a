package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// The output of each kind of stdout (CA-06).
func TestParseOutput(t *testing.T) {
	tests := []struct{ name, stdout, want string }{
		{"nothing", "", `{}`},
		{"white space", " \r\n\t", `{}`},
		{"an object", `{"a": [1, {"b": null}]}` + "\n", `{"a":[1,{"b":null}]}`},
		{"a byte order mark", "\xef\xbb\xbf{\"a\":1}", `{"a":1}`},
		{"a byte order mark and nothing", "\xef\xbb\xbf\n", `{}`},
		{"an array", `[1, 2]`, `{"result":[1,2]}`},
		{"a string", `"x"`, `{"result":"x"}`},
		{"null", `null`, `{"result":null}`},
		{"false", "false\n", `{"result":false}`},
		{"a large integer", `12345678901234567890123`, `{"result":12345678901234567890123}`},
		{"large integers inside", `{"n":9007199254740993,"f":1.10,"e":1e400}`, `{"n":9007199254740993,"f":1.10,"e":1e400}`},
		{"escapes stay", `{"a":"\u00e9\/"}`, `{"a":"\u00e9\/"}`},
		// CA-08
		{"its own words", `{"raw_output":"x","parse_error":{}}`, `{"raw_output":"x","parse_error":{}}`},
		{"as deep as can be", `{"a":` + nested(64) + `}`, `{"a":` + nested(64) + `}`},
		{"text", " hello\n", `{"raw_output":"hello","parse_error":{"message":"invalid character 'h' at start of value","offset":1}}`},
		{"NaN", `NaN`, `{"raw_output":"NaN","parse_error":{"message":"invalid character 'N' at start of value","offset":0}}`},
		{"NaN inside", `{"a":NaN}`, `{"raw_output":"{\"a\":NaN}","parse_error":{"message":"invalid character 'N' at start of value","offset":5}}`},
		{"Infinity", `[-Infinity]`, `{"raw_output":"[-Infinity]","parse_error":{"message":"invalid character 'I' in number (expecting digit)","offset":2}}`},
		{"cut off", `{"a":`, `{"raw_output":"{\"a\":","parse_error":{"message":"unexpected EOF","offset":5}}`},
		{"two values", `{} {}`, `{"raw_output":"{} {}","parse_error":{"message":"unexpected data after the first value","offset":2}}`},
		{"text behind", "{}\nok", `{"raw_output":"{}\nok","parse_error":{"message":"invalid character 'o' at start of value","offset":3}}`},
		{"a key twice", `{"a":1,"a":2}`, `{"raw_output":"{\"a\":1,\"a\":2}","parse_error":{"message":"duplicate object member name","offset":7}}`},
		{"not UTF-8", "\"\xff\"", `{"raw_output":"\"` + "\uFFFD" + `\"","parse_error":{"message":"invalid UTF-8","offset":1}}`},
		{
			"the mark counts for the offset", "\xef\xbb\xbfx",
			`{"raw_output":"` + "\ufeff" + `x","parse_error":{"message":"invalid character 'x' at start of value","offset":3}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, cause, err := parseOutput(strings.NewReader(tt.stdout), viewOf(tt.stdout))
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			}
			if (cause != nil) != strings.HasPrefix(tt.want, `{"raw_output":"`) && tt.name != "its own words" {
				t.Errorf("cause %v", cause)
			}
		})
	}
}

// viewOf is the summary of a stream that was captured completely.
func viewOf(stdout string) dray.StreamSummary {
	n := int64(len(stdout))
	return dray.StreamSummary{
		Text: strings.ToValidUTF8(stdout, "\uFFFD"), HeadBytes: n, TotalBytes: n,
		KeptBytes: n,
	}
}

// An output that is too deep, too long or truncated is a parse error (PM-08, CA-06).
func TestParseOutputLimits(t *testing.T) {
	deep := `{"a":` + nested(65) + `}`
	if got, cause, err := parseOutput(strings.NewReader(deep), viewOf(deep)); err != nil ||
		cause == nil || cause.offset != 70 {
		t.Errorf("65 below the top gave %s, %v, %v", got, cause, err)
	}
	bottomless := strings.Repeat("[", 1<<20)
	if _, cause, err := parseOutput(strings.NewReader(bottomless), viewOf(bottomless)); err != nil ||
		cause == nil {
		t.Errorf("a million brackets gave %v, %v", cause, err)
	}
	kept := dray.StreamSummary{
		Text: "[1,\n[... 5 bytes omitted ... ]\n2]", TotalBytes: 20,
		KeptBytes: 7, Truncated: true,
	}
	got, cause, err := parseOutput(strings.NewReader(`{"a":1}`), kept)
	if err != nil || cause == nil || cause.offset != 7 || !strings.Contains(string(got), "omitted") {
		t.Errorf("a stream that is kept in part gave %s, %v, %v", got, cause, err)
	}
	long := `"` + strings.Repeat("x", maxOutput) + `"`
	if _, cause, err := parseOutput(strings.NewReader(long),
		dray.StreamSummary{Text: "a view"}); err != nil || cause == nil || cause.offset != maxOutput {
		t.Errorf("a long stream gave %v, %v", cause, err)
	}
	if _, _, err := parseOutput(iotest.ErrReader(io.ErrClosedPipe),
		dray.StreamSummary{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a capture that cannot be read gave %v", err)
	}
}

// FuzzStructured: the output is always one JSON object, and a value that any JSON reader accepts
// keeps its meaning.
func FuzzStructured(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "\xef\xbb\xbf[1]", `{"a":1e999}`, "NaN", `{"a":1,"a":2}`, "\"\\ud800\"", "\"\xff\"", nested(66), "1 2", "\x00", "-0",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		got, cause, err := parseOutput(bytes.NewReader(stdout), viewOf(string(stdout)))
		if err != nil {
			t.Fatal(err)
		}
		if v := jsontext.Value(got); !v.IsValid() || v.Kind() != '{' {
			t.Fatalf("%q became %s, which is no object", stdout, got)
		}
		if cause != nil {
			if cause.offset < 0 || cause.offset > int64(len(stdout)) {
				t.Fatalf("%q: the offset is %d", stdout, cause.offset)
			}
			return
		}
		sameMeaning(t, stdout, got)
	})
}

// sameMeaning compares with encoding/json.
func sameMeaning(t *testing.T, stdout, got []byte) {
	t.Helper()
	text := bytes.TrimSpace(bytes.TrimPrefix(stdout, byteOrderMark))
	if len(text) == 0 {
		text = []byte("{}")
	}
	if text[0] != '{' {
		text = append(append([]byte(`{"result":`), text...), '}')
	}
	var want bytes.Buffer
	if err := json.Compact(&want, text); err != nil {
		t.Fatalf("%q was parsed, and encoding/json says %v", stdout, err)
	}
	if want.String() != string(got) {
		t.Fatalf("%q became %s, want %s", stdout, got, want.String())
	}
}
