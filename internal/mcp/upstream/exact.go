package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// exactKey is the member of a result's _meta that has the text of its structured content. The SDK
// decodes the content to float64, which rounds integers beyond 2^53.
const exactKey = "dray/structuredContent"

// exactTransport keeps the text of structured contents.
type exactTransport struct{ *sdk.IOTransport }

// Connect implements [sdk.Transport].
func (t exactTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.IOTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return exactConnection{conn}, nil
}

type exactConnection struct{ sdk.Connection }

// Read implements [sdk.Connection].
func (c exactConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if _, ok := errors.AsType[*jsonrpc.Error](err); ok {
		// A server that answers has sent a message. This is none, which the SDK says by the same type.
		return nil, fmt.Errorf("it printed a line that is no message of JSON-RPC: %s", err.Error())
	}
	r, ok := msg.(*jsonrpc.Response)
	if ok && bytes.Contains(r.Result, []byte(`"structuredContent"`)) {
		r.Result = withExactContent(r.Result)
	}
	return msg, err
}

// withExactContent adds the text of a result's structured content to its _meta. A result that is
// not an object is left to the SDK, which refuses it.
func withExactContent(result json.RawMessage) json.RawMessage {
	var members, meta map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return result
	}
	content, ok := members["structuredContent"]
	if !ok {
		return result
	}
	_ = json.Unmarshal(members["_meta"], &meta) // else it has no member that is kept
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[exactKey], _ = json.Marshal(string(content)) // texts and JSON always have a JSON form
	members["_meta"], _ = json.Marshal(meta)
	text, _ := json.Marshal(members)
	return text
}
