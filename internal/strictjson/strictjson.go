// Package strictjson decodes requests and encodes responses.
//
// A request that could be read in two ways is refused: duplicate names, unknown members, null,
// invalid UTF-8, lone surrogates, NaN and anything after the value. The error has a pointer to the
// violation. All responses have one form.
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

// maxMembers bounds the members of an object that is decoded into a map. A value that stays JSON,
// such as the input of a tool, may have more.
const maxMembers = 1 << 16

var (
	errNull           = errors.New("null is not allowed here: omit the member")
	errTooManyMembers = fmt.Errorf("the object has more than %d members", maxMembers)
)

// options refuse what the decoder accepts by default. It compares names with their case and refuses
// duplicate names and invalid UTF-8 in any case.
var options = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.UnmarshalFromFunc(checkValue)),
)

// checkValue is called before each value is decoded. The decoder itself would decode null as the
// zero value.
func checkValue(dec *jsontext.Decoder, _ any) error {
	if dec.PeekKind() == 'n' {
		return errNull
	}
	if kind, length := dec.StackIndex(dec.StackDepth()); kind == '{' && length > 2*maxMembers {
		return errTooManyMembers
	}
	return errors.ErrUnsupported
}

// Decode decodes one JSON value into v. It fails with invalid_request and a JSON pointer to the
// violation.
func Decode(data []byte, v any) error {
	unique := len(data) >= largeBody && hasUniqueNames(data)
	err := json.Unmarshal(data, v, options, jsontext.AllowDuplicateNames(unique))
	if err == nil {
		return nil
	}
	pointer, message := describeError(err)
	where := ""
	if pointer != "" {
		where = " at " + truncate(pointer)
	}
	e := dray.Errorf(dray.CodeInvalidRequest, "invalid JSON body%s: %s", where, message).
		WithHint("%s", hint(err))
	e.Details = []dray.Detail{{Pointer: truncate(pointer), Message: message}}
	return e
}

// describeError returns the pointer and message of an error, without the names of Go types.
func describeError(err error) (pointer, message string) {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return string(e.JSONPointer), truncate(e.Err.Error())
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return "", truncate(err.Error())
	case e.Err == nil:
		return string(e.JSONPointer), kind(e.JSONKind) + " is not allowed here"
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

// encodeOptions define the form of responses and events: empty lists and maps are not null, and the
// members of maps are sorted. The output of a tool may contain anything: invalid UTF-8 is replaced,
// and duplicate names remain.
var encodeOptions = json.JoinOptions(
	json.Deterministic(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// Encode returns v as JSON.
func Encode(v any) ([]byte, error) {
	return json.Marshal(v, encodeOptions)
}
