package upstream

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray/internal/lexical"
)

// Reply is the result of a tool as text and as JSON.
type Reply struct {
	// Text has the texts, and a line for each other content.
	Text string
	// Output is the structured content if it is an object, else nil.
	Output json.RawMessage
	// Failed reports whether the tool reported a failure.
	Failed bool
}

func newReply(res *sdk.CallToolResult) Reply {
	texts := make([]string, 0, len(res.Content))
	for _, content := range res.Content {
		texts = append(texts, contentText(content))
	}
	reply := Reply{Text: strings.Join(texts, "\n"), Failed: res.IsError}
	exact, _ := res.Meta[exactKey].(string)
	if _, ok := res.StructuredContent.(map[string]any); ok {
		reply.Output = json.RawMessage(exact)
	}
	return reply
}

func contentText(content sdk.Content) string {
	line := func(text string) string { return lexical.PlainLine(text, maxLine) }
	switch c := content.(type) {
	case *sdk.TextContent:
		return c.Text
	case *sdk.ImageContent:
		return fmt.Sprintf("[image %s, %d bytes]", line(c.MIMEType), len(c.Data))
	case *sdk.AudioContent:
		return fmt.Sprintf("[audio %s, %d bytes]", line(c.MIMEType), len(c.Data))
	case *sdk.ResourceLink:
		return fmt.Sprintf("[resource %s]", line(c.URI))
	case *sdk.EmbeddedResource:
		if c.Resource == nil {
			return "[resource]"
		}
		if c.Resource.Text != "" {
			return c.Resource.Text
		}
		return fmt.Sprintf("[resource %s, %d bytes]", line(c.Resource.URI), len(c.Resource.Blob))
	default:
		return "[unsupported content]"
	}
}
