package strictjson

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// maxMessage bounds what an error repeats of the caller's own text.
const maxMessage = 200

var errNull = errors.New("null is no value here: leave the member out")

// options refuse what the decoder would let pass by default. Names are compared with case,
// duplicates and bad UTF-8 are refused anyway.
var options = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.UnmarshalFromFunc(rejectNull)),
)

// rejectNull runs before each value is read. Without it null would silently be the zero value of
// any type.
func rejectNull(dec *jsontext.Decoder, _ any) error {
	if dec.PeekKind() == 'n' {
		return errNull
	}
	return errors.ErrUnsupported
}

// Decode reads one JSON value into v. The error is invalid_request.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v, options)
	if err == nil {
		return nil
	}
	pointer, message := describeError(err)
	where := ""
	if pointer != "" {
		where = " at " + truncate(pointer)
	}
	e := dray.Errorf(dray.CodeInvalidRequest, "reading the JSON body%s: %s", where, message).
		WithHint("%s", hint(err))
	e.Details = []dray.Detail{{Pointer: truncate(pointer), Message: message}}
	return e
}

// describeError puts an error into words that name no Go type.
func describeError(err error) (pointer, message string) {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return string(e.JSONPointer), truncate(e.Err.Error())
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return "", truncate(err.Error())
	case e.Err == nil:
		return string(e.JSONPointer), kind(e.JSONKind) + " does not belong here"
	case e.JSONKind == '0':
		return string(e.JSONPointer), truncate(fmt.Sprintf("%s: %v", e.JSONValue, e.Err))
	default:
		return string(e.JSONPointer), truncate(e.Err.Error())
	}
}

func hint(err error) string {
	if errors.Is(err, json.ErrUnknownName) {
		return "names are compared exactly; /openapi.json lists the members"
	}
	return "send one JSON object in UTF-8, each name once; /openapi.json describes it"
}

func kind(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	default:
		return "this"
	}
}

// truncate bounds what an error repeats of a request, and makes it valid UTF-8.
func truncate(s string) string {
	return lexical.Truncate(strings.ToValidUTF8(s, "\uFFFD"), maxMessage)
}

// encodeOptions is the one form that answers and events have: no null for what is empty, members of
// a map in order. What a tool printed may hold anything, so bytes that are not UTF-8 are replaced,
// and names that its output has twice stay.
var encodeOptions = json.JoinOptions(
	json.Deterministic(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// Encode writes a value.
func Encode(v any) ([]byte, error) {
	return json.Marshal(v, encodeOptions)
}
