package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/tool"
)

func newTools(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools [NAME]",
		Short: "List the tools, or show one",
		Long: `tools lists the tools with their states, or shows one with its schemas. For a tool
with the name of a command below, write -- before it.`,
		Example: "  dray tools\n  dray tools read_file\n  dray tools -- lint",
		Args:    atMostOne("the name of one tool"),
	}
	cmd.AddCommand(newToolsLint(a),
		newToolState(a, "enable", "Allow calls of a tool again", "enable undoes disable."),
		newToolState(a, "disable", "Deny calls of a tool",
			`disable denies calls of a tool; running calls go on. It holds until dray tools enable,
also after a restart.`))
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

func newToolState(a *app, action, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   action + " NAME",
		Short: short,
		Long: long + ` Only root and the daemon's user may change the state of a tool. Each
change is recorded in the audit log.`,
		Example: "  dray tools " + action + " shell",
		Args:    oneArg("the name of a tool", "dray tools "+action+" shell"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			reply, err := c.SetToolState(ctx, args[0], action)
			return printReply(a, reply, err, func(t client.Tool) error {
				_, err := fmt.Fprintln(a.out, escapeLine(t.Name+": "+t.State))
				return outputError(err)
			})
		})
	})
	return cmd
}

func newToolsLint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check files with tools",
		Long: `lint checks files with lists of tools, and the files *.yaml in directories, as a daemon
would that has them in tool_dirs. It prints each mistake with its file, line, key and fix,
and exits with 1 if there is any. It does not use or start a daemon. Tools in the
configuration file are checked by dray config check.`,
		Example: "  dray tools lint .dray/tools.yaml\n  dray tools lint /etc/dray/tools --json",
		Args:    atLeastOne("a file or directory", "dray tools lint .dray/tools.yaml"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(_ context.Context, args []string) error { return a.runToolsLint(args) })
	return cmd
}

// lintReport is the JSON output of tools lint.
type lintReport struct {
	OK       bool                `json:"ok"`
	Tools    int                 `json:"tools"`
	Mistakes []config.Diagnostic `json:"mistakes"`
}

func (a *app) runToolsLint(paths []string) error {
	cfg, found := config.ReadTools(paths)
	registry, err := tool.NewRegistry(tool.Options{})
	if err != nil {
		return err
	}
	found = append(found, addTools(registry, cfg)...)
	config.SortDiagnostics(found)
	report := lintReport{OK: len(found) == 0, Tools: len(cfg.Tools), Mistakes: found}
	if err := a.printLint(report); err != nil || report.OK {
		return err
	}
	return exitError(exitFailed)
}

func (a *app) printLint(report lintReport) error {
	if a.json {
		return a.printJSON(report)
	}
	var b strings.Builder
	for _, m := range report.Mistakes {
		b.WriteString(escapeText(m.String()) + "\n")
	}
	if report.OK {
		fmt.Fprintf(&b, "ok: %d tools\n", report.Tools)
	}
	_, err := io.WriteString(a.out, b.String())
	return outputError(err)
}

func (a *app) printTools(page client.Page[client.Tool]) error {
	t := table{head: []string{"NAME", "STATE", "RUNS", "DESCRIPTION"}}
	for _, tool := range page.Items {
		t.add(tool.Name, tool.State, runsIn(tool), firstSentence(tool.Description))
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
	head.add("state", tool.State)
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
