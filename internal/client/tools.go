package client

import (
	"context"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
)

// Tool is one tool as it is listed.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Environment is a word, or {"specific": NAME}.
	Environment  jsontext.Value `json:"environment"`
	InputSchema  jsontext.Value `json:"input_schema"`
	OutputSchema jsontext.Value `json:"output_schema"`
}

// Tools lists what can be called.
func (c *Client) Tools(ctx context.Context) (Reply[Page[Tool]], error) {
	return get[Page[Tool]](ctx, c, "/v1/tools", nil)
}

// Tool gives one tool.
func (c *Client) Tool(ctx context.Context, name string) (Reply[Tool], error) {
	return get[Tool](ctx, c, "/v1/tools/"+url.PathEscape(name), nil)
}
