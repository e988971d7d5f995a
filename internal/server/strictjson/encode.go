package strictjson

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encodeOptions is the one form that answers and events have: no null for what is empty, members of a map in order. What a tool printed may hold anything,
// so bytes that are not UTF-8 are replaced, and names that its output has twice stay.
var encodeOptions = json.JoinOptions(
	json.Deterministic(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// Encode writes a value.
func Encode(v any) ([]byte, error) {
	return json.Marshal(v, encodeOptions)
}
