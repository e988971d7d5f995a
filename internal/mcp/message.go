package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Codes of JSON-RPC errors.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeInternal = -32603
)

// errorReply returns an error as the response to a request. The id is null for a message without
// one.
func errorReply(id json.RawMessage, code int, text string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	reply, _ := json.Marshal(map[string]any{ // texts, numbers and JSON always have a JSON form
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text},
	})
	return reply
}

// readMessage returns the body of a request, which can be read again. It refuses a message that a
// proxy could read in another way than the SDK, which takes the last of two members of one name and
// ignores what follows a message (SE-03). The SDK refuses all else that is wrong.
func readMessage(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if r.Method != http.MethodPost {
		return nil, true
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = checkMessage(body)
	}
	if err != nil {
		w.Header().Set("Content-Type", mediaJSON)
		w.WriteHeader(http.StatusBadRequest)
		// a client that has disconnected needs no answer
		_, _ = w.Write(errorReply(nil, codeRequest, err.Error()))
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
}

// checkMessage fails for a message with a member twice, in itself, its params or their _meta, or
// with something behind it. Arguments of tools are checked where they are decoded.
func checkMessage(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	err := checkMembers(dec, "params", "_meta")
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); ok || errors.Is(err, io.EOF) {
		return nil // the SDK says what is wrong
	}
	if err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the message")
	}
	return nil
}

// checkMembers reads a value, of which it checks the members of objects down to the nested ones.
func checkMembers(dec *jsontext.Decoder, nested ...string) error {
	switch dec.PeekKind() {
	case '{':
	case '[':
		return checkBatch(dec, nested)
	default:
		return dec.SkipValue()
	}
	seen := map[string]bool{}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if seen[name] {
			return fmt.Errorf("the message has the member %.100q twice", name)
		}
		seen[name] = true
		if len(nested) > 0 && name == nested[0] {
			err = checkMembers(dec, nested[1:]...)
		} else {
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// checkBatch checks the messages of a batch.
func checkBatch(dec *jsontext.Decoder, nested []string) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' && dec.PeekKind() != 0 {
		if err := checkMembers(dec, nested...); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}
