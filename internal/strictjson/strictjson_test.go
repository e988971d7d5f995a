package strictjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

type form struct {
	A string            `json:"a"`
	F *float64          `json:"f"`
	B bool              `json:"b"`
	D []byte            `json:"d"`
	M map[string]string `json:"m"`
	L []string          `json:"l"`
	V json.RawMessage   `json:"v"`
	P struct {
		X string `json:"x"`
	} `json:"p"`
}

// A value with one meaning is accepted (SE-03).
func TestDecodeAccepts(t *testing.T) {
	for _, text := range []string{
		`{}`, " \t\r\n{ } ", `{"a":"\ud83d\ude00"}`, `{"a":"\u0000"}`, `{"f":1e308}`, `{"f":-0.0}`, `{"v":{"a":[1,{"b":null}],"c":1e999}}`,
		`{"v":12345678901234567890.00}`, `{"v":"null"}`, `{"d":"AA=="}`, `{"p":{"x":""}}`, `{"m":{"":""},"l":[]}`,
	} {
		var f form
		if err := strictjson.Decode([]byte(text), &f); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A value with no meaning or several is refused with a pointer (SE-03).
func TestDecodeRefuses(t *testing.T) {
	for text, pointer := range map[string]string{
		``: "", ` `: "", `{`: "", `{"a"`: "/a", `{"a":`: "/a", `nul`: "", `[]`: "", `"a"`: "", `1`: "", `null`: "", `{} {}`: "", `{}]`: "",
		`{"a":1}`: "/a", `{"a":true}`: "/a", `{"a":["x"]}`: "/a", `{"a":{}}`: "/a", `{"a":null}`: "/a", `{a:"x"}`: "", `{'a':"x"}`: "",
		`{"a":"x","a":"x"}`: "/a", `{"A":"x"}`: "/A", `{"a ":"x"}`: "/a ", `{"p":{"y":1}}`: "/p/y", `{"p":{"x":"","x":""}}`: "/p/x",
		`{"f":01}`: "", `{"f":+1}`: "/f", `{"f":.5}`: "/f", `{"f":1.}`: "/f", `{"f":0x10}`: "", `{"f":NaN}`: "/f", `{"f":-Infinity}`: "/f",
		`{"f":1e999}`: "/f", `{"f":"1"}`: "/f", `{"b":1}`: "/b", `{"b":"true"}`: "/b", `{"d":"A"}`: "/d", `{"d":"A-_="}`: "/d",
		`{"m":{"k":1}}`: "/m/k", `{"m":{"a/b":null}}`: "/m/a~1b", `{"m":{"k":"","k":""}}`: "/m/k", `{"l":[null]}`: "/l/0", `{"l":["",1]}`: "/l/1",
		`{"v":{"x":1,"x":2}}`: "/v/x", `{"v":[{"x":"\ud800"}]}`: "/v/0/x", `{"v":undefined}`: "/v", "{\"v\":\"\xff\"}": "/v", "{\"a\":\"\t\"}": "/a",
		"\xef\xbb\xbf{}": "", "{\"a\":\"x\"}\x00": "", `{"a":"\x"}`: "/a", `{"a":"\ud800\u0041"}`: "/a", "{\"\xff\":1}": "",
	} {
		var f form
		err := strictjson.Decode([]byte(text), &f)
		e := dray.AsError(err)
		if e == nil {
			t.Errorf("%s was accepted", text)
			continue
		}
		if e.Code != dray.CodeInvalidRequest || e.Hint == "" || len(e.Details) != 1 ||
			e.Details[0].Pointer != pointer {
			t.Errorf("%s: %+v", text, e)
		}
		if strings.Contains(e.Message, "Go ") || strings.Contains(e.Message, "strictjson") {
			t.Errorf("%s: the message has Go names: %s", text, e.Message)
		}
	}
}

func TestDecodeErrorsAreShort(t *testing.T) {
	for _, text := range []string{`{"a":"\ud800` + strings.Repeat("€", 10000) + `"}`, `{"` + strings.Repeat("ä", 10000) + `":1}`, `{"f":` + strings.Repeat("9", 100000) + "}"} {
		var f form
		if err := strictjson.Decode([]byte(text), &f); err == nil || len(err.Error()) > 1000 ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%.40s: %d bytes", text, len(err.Error()))
		}
	}
}

func TestEncode(t *testing.T) {
	type reply struct {
		List []string          `json:"list"`
		Map  map[string]string `json:"map"`
		Text string            `json:"text"`
		Raw  json.RawMessage   `json:"raw"`
		None json.RawMessage   `json:"none"`
	}
	b, err := strictjson.Encode(reply{Map: map[string]string{"b": "", "a": ""}, Text: "<\xff>\u2028", Raw: json.RawMessage(`{"x":1,"x": 2}`)})
	if want := `{"list":[],"map":{"a":"","b":""},"text":"<` + "\ufffd" + `>` + "\u2028" + `","raw":{"x":1,"x":2},"none":null}`; err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	for _, bad := range []any{math.NaN(), reply{Raw: json.RawMessage(`{`)}} {
		if b, err := strictjson.Encode(bad); err == nil {
			t.Errorf("%s", b)
		}
	}
}

// FuzzDecode checks that encoding/json decodes every accepted value in the same way.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"a":"x","f":1.5,"b":true,"d":"AA==","m":{"k":"v"},"l":["x"],"v":[1],"p":{"x":"y"}}`, `{"a":"\ud800"}`, `{"a":"a","a":"b"}`, `{}x`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want form
		err := strictjson.Decode(text, &got)
		if err != nil {
			if e := dray.AsError(err); e.Code != dray.CodeInvalidRequest || len(e.Message) > 1000 {
				t.Errorf("%+v", e)
			}
			return
		}
		if !utf8.Valid(text) || json.Unmarshal(text, &want) != nil {
			t.Fatalf("accepted %q", text)
		}
		a, errA := json.Marshal(got)
		b, errB := json.Marshal(want)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%q is decoded as %s (%v), by encoding/json as %s (%v)", text, a, errA, b, errB)
		}
	})
}
