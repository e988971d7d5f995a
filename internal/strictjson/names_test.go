package strictjson_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

const million = 1_000_000

// members returns n members with different names.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	return b.String()[1:]
}

// A million names are compared without a copy of each (SE-03).
func TestDecodeCopiesNoNames(t *testing.T) {
	body := []byte(`{"v":{` + members(million) + `}}`)
	var f form
	allocs := testing.AllocsPerRun(1, func() {
		if err := strictjson.Decode(body, &f); err != nil {
			t.Fatal(err)
		}
	})
	if len(f.V) != len(body)-len(`{"v":}`) || allocs > 1000 {
		t.Errorf("%d bytes decoded with %.0f allocations", len(f.V), allocs)
	}
}

// In a large body, names are compared as in a small one: exactly, after their escapes are decoded,
// and within one object (SE-03).
func TestDecodeComparesManyNames(t *testing.T) {
	many := members(10_000)
	for text, pointer := range map[string]string{
		`{"v":{` + many + `}}`:                              "accepted",
		`{"v":{` + many + `,"k5":1}}`:                       "/v/k5",
		`{"v":{` + many + `,"\u006b5":1}}`:                  "/v/k5",
		`{"v":[{` + many + `},{"k5":{"k5":[{"k5":1}]}}]}`:   "accepted",
		`{"v":[{` + many + `},{"k5":{"x":1,"y":1,"x":1}}]}`: "/v/1/k5/x",
		`{"v":{"a":[{"k":1},{"k":1}],` + many + `,"a":1}}`:  "/v/a",
		`{"v":{` + many + `}} {}`:                           "",
		`{"v":{` + many + `,`:                               "/v",
	} {
		var f form
		got := "accepted"
		if err := strictjson.Decode([]byte(text), &f); err != nil {
			got = dray.AsError(err).Details[0].Pointer
		}
		if got != pointer {
			t.Errorf("%.20s...%s: %q instead of %q", text, text[len(text)-30:], got, pointer)
		}
	}
}

// An object that is decoded into a map has a maximum of members.
func TestDecodeBoundsMaps(t *testing.T) {
	var f struct {
		M map[string]float64 `json:"m"`
	}
	if err := strictjson.Decode([]byte(`{"m":{`+members(1<<16)+`}}`), &f); err != nil {
		t.Error(err)
	}
	err := strictjson.Decode([]byte(`{"m":{`+members(1<<16+1)+`}}`), &f)
	if err == nil || !strings.Contains(err.Error(), "/m/k65536: the object has more than 65536 members") {
		t.Error(err)
	}
}
