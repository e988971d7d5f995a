package command

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newTools(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tools [NAME]",
		Short:   "List the tools, or show one",
		Example: "  dray tools\n  dray tools read_file",
		Args:    atMostOne("the name of one tool"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			if len(args) == 1 {
				return a.showTool(ctx, c, args[0])
			}
			return a.listTools(ctx, c)
		})
	})
	return cmd
}

func (a *app) listTools(ctx context.Context, c *client.Client) error {
	reply, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	t := table{head: []string{"NAME", "RUNS", "DESCRIPTION"}}
	for _, tool := range reply.Value.Items {
		t.add(tool.Name, runsIn(tool), firstSentence(tool.Description))
	}
	return t.write(a.out)
}

// firstSentence is what a list has room for; `dray tools NAME` shows the rest.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if sentence, _, more := strings.Cut(text, ". "); more {
		return sentence + "."
	}
	return text
}

func (a *app) showTool(ctx context.Context, c *client.Client, name string) error {
	reply, err := c.Tool(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	tool := reply.Value
	var head section
	head.add("name", tool.Name)
	head.add("runs", runsIn(tool))
	head.add("about", tool.Description)
	return writeSections(a.out, []section{
		head, {title: "input schema", text: indented(tool.InputSchema)}, {
			title: "output schema",
			text:  indented(tool.OutputSchema),
		},
	})
}

// runsIn says where a tool runs: a word, or the container that it is bound to.
func runsIn(tool client.Tool) string {
	var word string
	if json.Unmarshal(tool.Environment, &word) == nil {
		return word
	}
	var bound struct {
		Specific string `json:"specific"`
	}
	_ = json.Unmarshal(tool.Environment, &bound) // what cannot be read is shown as nothing
	return bound.Specific
}

// indented lays JSON out in lines. null is nothing.
func indented(b []byte) string {
	v := jsontext.Value(strings.TrimSpace(string(b)))
	if v.Kind() == 'n' || v.Indent(jsontext.WithIndent("  ")) != nil {
		return ""
	}
	return string(v)
}
