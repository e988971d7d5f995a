package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/transfer"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show the configuration"}
	cmd.AddCommand(newConfigCheck(a), newConfigShow(a), newConfigSchema(a))
	return group(cmd)
}

func newConfigCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration; nothing starts",
		Long: `check reads the configuration that a daemon with these flags and variables would
have, and checks it as a daemon does that starts: keys and values, schemas of tools,
targets of routing, the choice of the engine, the state folder. It says what it read
and ok, or all mistakes, each with its place and its fix, and exits with 2. No daemon
is asked or started.`,
		Example: "  dray config check\n  dray config check --config ./config.yaml",
		Args:    noArgs,
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runConfigCheck() })
	return cmd
}

// checkReport is what programs get to know of a check.
type checkReport struct {
	OK        bool             `json:"ok"`
	File      string           `json:"file"`
	Variables []string         `json:"variables"`
	Flags     []string         `json:"flags"`
	Warnings  []string         `json:"warnings"`
	Mistakes  []diagnosticJSON `json:"mistakes"`
}

// diagnosticJSON is a [config.Diagnostic] with its place as one text.
type diagnosticJSON struct {
	Origin  string `json:"origin"`
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

func (a *app) runConfigCheck() error {
	cfg, err := a.load()
	if err == nil {
		err = checkStart(cfg)
	}
	var wrong *config.InvalidError
	switch {
	case errors.As(err, &wrong) && a.json:
		return a.printDiagnostics(wrong)
	case err != nil:
		return err
	}
	read := checkReport{OK: true, File: cfg.File}
	read.Variables, read.Flags = origins(cfg.Settings())
	if _, err := devcontainerCLI(cfg); err != nil {
		read.Warnings = append(read.Warnings, err.Error())
	}
	return a.printReport(read)
}

func (a *app) printReport(read checkReport) error {
	if a.json {
		return a.printJSON(read)
	}
	for _, w := range read.Warnings {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine(w))
	}
	s := section{text: "ok"}
	s.add("file", cmp.Or(read.File, "none was found"))
	s.add("variables", strings.Join(read.Variables, ", "))
	s.add("flags", strings.Join(read.Flags, ", "))
	return writeSections(a.out, []section{s})
}

// printDiagnostics gives people the words of the error, and programs its parts.
func (a *app) printDiagnostics(wrong *config.InvalidError) error {
	a.printError(asError(wrong))
	var found checkReport
	for _, m := range wrong.Diagnostics {
		found.Mistakes = append(found.Mistakes,
			diagnosticJSON{
				Origin: m.Origin.String(), Key: m.Key, Value: m.Value, Problem: m.Problem,
				Fix: m.Suggestion,
			})
	}
	if err := a.printJSON(found); err != nil {
		return err
	}
	return exitError(exitUsage)
}

// checkStart finds what would keep a daemon with this configuration from starting, all of it. It is
// a [*config.InvalidError].
func checkStart(cfg *config.Config) error {
	mistakes := checkTools(cfg)
	for _, one := range []func(*config.Config) (config.Diagnostic,
		bool){checkRouting, checkEngine, checkSandbox} {
		if m, wrong := one(cfg); wrong {
			mistakes = append(mistakes, m)
		}
	}
	if state, ok := errors.AsType[*config.InvalidError](cfg.CheckState()); ok {
		mistakes = append(mistakes, state.Diagnostics...)
	}
	if len(mistakes) == 0 {
		return nil
	}
	return &config.InvalidError{Diagnostics: mistakes}
}

// checkTools takes the tools one by one, since the registry stops at the first that it refuses.
func checkTools(cfg *config.Config) []config.Diagnostic {
	var mistakes []config.Diagnostic
	for i, t := range cfg.Tools {
		if err := checkTool(cfg, t); err != nil {
			mistakes = append(mistakes, toolMistake(cfg, i, err))
		}
	}
	return mistakes
}

func checkTool(cfg *config.Config, t config.Tool) error {
	one := *cfg
	one.Tools = []config.Tool{t}
	_, err := newToolRegistry(&one)
	if wrong := (*tool.CommandError)(nil); errors.As(err, &wrong) {
		return errors.New(strings.TrimPrefix(wrong.Unwrap().Error(), fmt.Sprintf("tool %q: ", t.Name)))
	}
	return err
}

// toolMistake finds the key that an error of a tool begins with, to say where it stands. Where it
// has none the tool's name says it.
func toolMistake(cfg *config.Config, i int, err error) config.Diagnostic {
	key := fmt.Sprintf("tools[%d]", i)
	m := config.Diagnostic{
		Origin: cfg.Origin(key + ".name"), Key: key, Problem: err.Error(),
		Suggestion: "correct the tool",
	}
	for _, name := range []string{"input_schema", "output_schema"} {
		if problem, ok := strings.CutPrefix(m.Problem, name+": "); ok {
			m.Key = key + "." + name
			m.Origin, m.Problem, m.Suggestion = cfg.Origin(m.Key), problem, "write a JSON Schema (draft 2020-12) of an object, or remove it"
		}
	}
	return m
}

// checkRouting asks the router, which knows nothing of tools before calls come.
func checkRouting(cfg *config.Config) (config.Diagnostic, bool) {
	without := *cfg
	without.Tools = nil
	tools, err := newToolRegistry(&without)
	if err == nil {
		_, err = newRouter(cfg, tools, devcontainer.Nearest)
	}
	if err == nil {
		return config.Diagnostic{}, false
	}
	fix := cmp.Or(dray.AsError(err).Hint, "correct routing")
	return config.Diagnostic{
		Origin: config.Origin{File: cfg.File}, Key: "routing",
		Problem: err.Error(), Suggestion: fix,
	}, true
}

// checkEngine chooses the engine and does not connect to it: whether it answers is not the
// configuration's business.
func checkEngine(cfg *config.Config) (config.Diagnostic, bool) {
	engine, err := container.NewEngine(container.EndpointConfig{
		Host:    cfg.Engine.Host,
		Context: cfg.Engine.Context,
	}, container.Options{})
	if err == nil {
		err = engine.Close()
	}
	if err == nil {
		return config.Diagnostic{}, false
	}
	key := "engine.host"
	if cfg.Engine.Context != "" {
		key = "engine.context"
	}
	return config.Diagnostic{
		Origin: cfg.Origin(key), Key: key, Problem: err.Error(),
		Suggestion: dray.AsError(err).Hint,
	}, true
}

// checkSandbox looks at the root as the daemon does that opens it, and makes none.
func checkSandbox(cfg *config.Config) (config.Diagnostic, bool) {
	const key = "sandbox.root"
	if cfg.Sandbox.Root == "" {
		return config.Diagnostic{}, false
	}
	err := transfer.Check(cfg.Sandbox.Root)
	if err == nil {
		return config.Diagnostic{}, false
	}
	return config.Diagnostic{
		Origin: cfg.Origin(key), Key: key,
		Problem: strings.TrimPrefix(err.Error(), key+": "), Suggestion: dray.AsError(err).Hint,
	}, true
}

func newConfigSchema(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON Schema of the configuration file, for editors",
		Long: `schema prints a JSON Schema (draft 2020-12) of the configuration file. Editors that
know one complete keys and mark mistakes while you type. What holds between several
keys is for dray config check to say.`,
		Example: `  dray config schema > ~/.config/dray/schema.json
  # and as the first line of config.yaml: # yaml-language-server: $schema=schema.json`,
		Args: noArgs,
	}
	cmd.RunE = a.run(func(context.Context, []string) error {
		_, err := a.out.Write(config.Schema())
		return outputError(err)
	})
	return cmd
}

func newConfigShow(a *app) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every value that holds, and where it comes from",
		Long: `show prints every value that a daemon with these flags and variables would have, one
per line. Secrets are not shown. A daemon that runs keeps the configuration that it
was started with. No daemon is asked or started.`,
		Example: "  dray config show --origin\n  DRAY_LIMITS_TIMEOUT=5m dray config show --json",
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&origin, "origin", false,
		"say where each value was set: file, variable, flag or default")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runConfigShow(origin) })
	return cmd
}

// configItem is a setting as programs get it.
type configItem struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin,omitempty"`
}

func (a *app) runConfigShow(origin bool) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	var items []configItem
	for _, s := range cfg.Settings() {
		item := configItem{Key: s.Key, Value: s.Value}
		if origin {
			item.Origin = s.Origin.String()
		}
		items = append(items, item)
	}
	if a.json {
		return a.printJSON(struct {
			File  string       `json:"file"`
			Items []configItem `json:"items"`
		}{cfg.File, items})
	}
	return writeConfig(a.out, items)
}

// writeConfig writes a line for each setting. What the file would have to write in several lines
// stands in one, as JSON.
func writeConfig(w io.Writer, items []configItem) error {
	var b strings.Builder
	for _, item := range items {
		text, err := configText(item.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s = %s", escapeLine(item.Key), text)
		if item.Origin != "" {
			b.WriteString("  # " + escapeLine(item.Origin))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}

// configText is a value in one line: a text bare where that leaves no doubt about where it begins
// and ends, everything else as JSON.
func configText(v any) (string, error) {
	if s, ok := v.(string); ok && s != "" && s == strings.TrimSpace(s) && s == escapeLine(s) {
		return s, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("writing a value of the configuration: %w", err)
	}
	return escapeLine(string(safeJSON(b))), nil
}

// origins gives the variables and flags that have set something, each once, in the order of the
// settings.
func origins(settings []config.Setting) (variables, flags []string) {
	seen := map[config.Origin]bool{}
	for _, s := range settings {
		at := config.Origin{Variable: s.Origin.Variable, Flag: s.Origin.Flag}
		if seen[at] {
			continue
		}
		seen[at] = true
		switch {
		case at.Flag != "":
			flags = append(flags, at.Flag)
		case at.Variable != "":
			variables = append(variables, at.Variable)
		}
	}
	return variables, flags
}
