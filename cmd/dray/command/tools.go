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
				reply, err := c.Tool(ctx, args[0])
				return printReply(a, reply, err, a.printTool)
			}
			reply, err := c.Tools(ctx)
			return printReply(a, reply, err, a.printTools)
		})
	})
	return cmd
}

func (a *app) printTools(page client.Page[client.Tool]) error {
	t := table{head: []string{"NAME", "RUNS", "DESCRIPTION"}}
	for _, tool := range page.Items {
		t.add(tool.Name, runsIn(tool), firstSentence(tool.Description))
	}
	return t.write(a.out)
}

// firstSentence shortens a description for a list; `dray tools NAME` shows all of it.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if sentence, _, more := strings.Cut(text, ". "); more {
		return sentence + "."
	}
	return text
}

func (a *app) printTool(tool client.Tool) error {
	var head section
	head.add("name", tool.Name)
	head.add("runs", runsIn(tool))
	head.add("about", tool.Description)
	return writeSections(a.out, []section{
		head,
		{title: "input schema", text: indented(tool.InputSchema)},
		{title: "output schema", text: indented(tool.OutputSchema)},
	})
}

// runsIn returns the environment of a tool: its kind, or the container that the tool is bound to.
func runsIn(tool client.Tool) string {
	var kind string
	if json.Unmarshal(tool.Environment, &kind) == nil {
		return kind
	}
	var bound struct {
		Specific string `json:"specific"`
	}
	_ = json.Unmarshal(tool.Environment, &bound) // an unknown form is shown as empty
	return bound.Specific
}

// indented formats JSON over several lines. It returns "" for null and for invalid JSON.
func indented(b []byte) string {
	v := jsontext.Value(strings.TrimSpace(string(b)))
	if v.Kind() == 'n' || v.Indent(jsontext.WithIndent("  ")) != nil {
		return ""
	}
	return string(v)
}
