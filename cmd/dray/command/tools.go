package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
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
		Long: `tools lists the tools with their states, or shows one with its schemas: those of the
daemon, and those that the project declares in .dray/tools.yaml. These are discovered
until the workspace is trusted, and active then. For a tool with the name of a command
below, write -- before it.`,
		Example: "  dray tools\n  dray tools read_file\n  dray tools --workspace /home/me/app\n" +
			"  dray tools -- lint",
		Args: atMostOne("the name of one tool"),
	}
	cmd.AddCommand(newToolsLint(a),
		newToolState(a, "enable", "Allow calls of a tool again", "enable undoes disable."),
		newToolState(a, "disable", "Deny calls of a tool",
			`disable denies calls of a tool; running calls go on. It holds until dray tools enable,
also after a restart.`))
	a.jsonFlag(cmd)
	var folder string
	addWorkspaceFlag(cmd, &folder)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		workspace, err := toolsWorkspace(ctx, folder)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			if len(args) == 1 {
				reply, err := c.Tool(ctx, args[0], workspace)
				return printReply(a, reply, err, a.printTool)
			}
			reply, err := c.Tools(ctx, workspace)
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
	var folder string
	addWorkspaceFlag(cmd, &folder)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		workspace, err := toolsWorkspace(ctx, folder)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			reply, err := c.SetToolState(ctx, args[0], action, workspace)
			return printReply(a, reply, err, func(t client.Tool) error {
				_, err := fmt.Fprintln(a.out, escapeLine(t.Name+": "+t.State))
				return outputError(err)
			})
		})
	})
	return cmd
}

// toolsWorkspace returns the workspace whose tools a command uses: the given one, else the one that
// contains the current directory, else "".
func toolsWorkspace(ctx context.Context, given string) (string, error) {
	current, err := currentDir()
	if err != nil || given != "" {
		return absolute(current, given), err
	}
	return nearestWorkspace(ctx, current), nil
}

func newToolsLint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check files with tools",
		Long: `lint checks files with lists of tools, and the files *.yaml in directories, as a daemon
would that has them in tool_dirs. A file .dray/tools.yaml is checked as the file of a
project, whose tools run only in its container. lint prints each mistake with its file,
line, key and fix, and exits with 1 if there is any. It does not use or start a daemon.
Tools in the configuration file are checked by dray config check.`,
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
	report, err := lintTools(paths)
	if err != nil {
		return err
	}
	if err := a.printLint(report); err != nil || report.OK {
		return err
	}
	return exitError(exitFailed)
}

// lintTools checks files of tools. The files of projects are checked one by one: they may have the
// same names.
func lintTools(paths []string) (lintReport, error) {
	var ofDaemon []string
	report := lintReport{Mistakes: []config.Diagnostic{}}
	registry, err := tool.NewRegistry(tool.Options{})
	if err != nil {
		return report, err
	}
	for _, path := range paths {
		if !isProjectTools(path) {
			ofDaemon = append(ofDaemon, path)
			continue
		}
		cfg, found := config.ReadProjectToolsFile(path)
		report.add(registry.Project("", nil), cfg, found)
	}
	cfg, found := config.ReadTools(ofDaemon)
	report.add(registry, cfg, found)
	config.SortDiagnostics(report.Mistakes)
	report.OK = len(report.Mistakes) == 0
	return report, nil
}

// isProjectTools reports whether a file is that of a project.
func isProjectTools(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && strings.HasSuffix(path, "/"+config.ProjectTools)
}

// add adds the tools of a configuration, and the mistakes that were found in it.
func (r *lintReport) add(registry *tool.Registry, cfg *config.Config, found []config.Diagnostic) {
	r.Tools += len(cfg.Tools)
	r.Mistakes = slices.Concat(r.Mistakes, found, addTools(registry, cfg))
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

func (a *app) printTools(page client.Tools) error {
	t := a.table("NAME", "STATE", "RUNS", "DESCRIPTION")
	warnings := slices.Clone(page.Warnings)
	for _, tool := range page.Items {
		t.add(tool.Name, tool.State, cmp.Or(tool.Workspace, runsIn(tool)),
			cmp.Or(firstSentence(tool.Description), "-"))
		// all tools of a project have the same reason, which is too long for a cell
		if tool.Reason != "" && tool.Description == "" && !slices.Contains(warnings, tool.Reason) {
			warnings = append(warnings, tool.Reason)
		}
	}
	for _, warning := range warnings {
		text := strings.ReplaceAll(escapeText(warning), "\n", "\n  ")
		fmt.Fprintln(a.err, "dray: warning: "+text)
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
	head.add("reason", tool.Reason)
	head.add("workspace", tool.Workspace)
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
