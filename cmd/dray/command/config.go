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
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/transfer"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show the configuration"}
	cmd.AddCommand(newConfigCheck(a), newConfigShow(a), newConfigSchema(a), newConfigExample(a))
	return group(cmd)
}

func newConfigCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration without starting anything",
		Long: `check reads the configuration that a daemon with these flags and environment
variables would use, and validates it like a daemon that starts: keys and values,
schemas of tools, routing targets, the engine, the state directory. It prints what it
read and "ok". If the configuration is invalid, it prints every problem with its origin
and a fix, and exits with 2. It does not use or start a daemon.`,
		Example: "  dray config check\n  dray config check --config ./config.yaml",
		Args:    noArgs,
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runConfigCheck() })
	return cmd
}

// checkReport is the JSON output of config check.
type checkReport struct {
	OK        bool                `json:"ok"`
	File      string              `json:"file"`
	Variables []string            `json:"variables"`
	Flags     []string            `json:"flags"`
	Warnings  []string            `json:"warnings"`
	Mistakes  []config.Diagnostic `json:"mistakes"`
}

func (a *app) runConfigCheck() error {
	cfg, err := a.load()
	if err == nil {
		err = checkStart(cfg)
	}
	var invalid *config.InvalidError
	switch {
	case errors.As(err, &invalid) && a.json:
		return a.printDiagnostics(invalid)
	case err != nil:
		return err
	}
	report := checkReport{OK: true, File: cfg.File}
	report.Variables, report.Flags = origins(cfg.Settings())
	unsafe, err := useSafePath(cfg)
	if err != nil {
		return err
	}
	for _, dir := range unsafe {
		report.Warnings = append(report.Warnings, fmt.Sprintf("PATH: %q is not used: it is relative, "+
			"in a workspace, or everybody may write to it", dir))
	}
	if _, err := devcontainerCLI(cfg); err != nil {
		report.Warnings = append(report.Warnings, err.Error())
	}
	return a.printReport(report, cfg.FileToEdit())
}

// printReport prints a report; edit is the file that would be read if there were one.
func (a *app) printReport(report checkReport, edit string) error {
	if a.json {
		return a.printJSON(report)
	}
	for _, w := range report.Warnings {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine(w))
	}
	s := section{text: "ok"}
	s.add("file", cmp.Or(report.File, "none: there is no "+edit))
	s.add("variables", strings.Join(report.Variables, ", "))
	s.add("flags", strings.Join(report.Flags, ", "))
	return writeSections(a.out, []section{s})
}

// printDiagnostics prints an invalid configuration as JSON, and its message on stderr.
func (a *app) printDiagnostics(invalid *config.InvalidError) error {
	a.printError(asError(invalid))
	if err := a.printJSON(checkReport{Mistakes: invalid.Diagnostics}); err != nil {
		return err
	}
	return exitError(exitUsage)
}

// checkStart returns a [*config.InvalidError] with everything that would keep a daemon with this
// configuration from starting.
func checkStart(cfg *config.Config) error {
	var found []config.Diagnostic
	_, err := newToolRegistry(cfg, tool.Options{})
	if tools, ok := errors.AsType[*config.InvalidError](err); ok {
		found = tools.Diagnostics
	}
	found = append(found, checkRedaction(cfg)...)
	found = append(found, checkPolicies(cfg)...)
	for _, check := range []func(*config.Config) *config.Diagnostic{
		checkRouting, checkEngine, checkSandbox,
	} {
		if d := check(cfg); d != nil {
			found = append(found, *d)
		}
	}
	if state, ok := errors.AsType[*config.InvalidError](cfg.CheckState()); ok {
		found = append(found, state.Diagnostics...)
	}
	if len(found) == 0 {
		return nil
	}
	return &config.InvalidError{Diagnostics: found}
}

// checkRouting creates a router.
func checkRouting(cfg *config.Config) *config.Diagnostic {
	_, err := newRouter(cfg, devcontainer.Nearest, nil)
	if err == nil {
		return nil
	}
	return &config.Diagnostic{
		Origin: config.Origin{File: cfg.File}, Key: "routing", Problem: err.Error(),
		Suggestion: cmp.Or(dray.AsError(err).Hint, "correct routing"),
	}
}

// checkEngine selects the engine without connecting to it.
func checkEngine(cfg *config.Config) *config.Diagnostic {
	endpoint := docker.EndpointConfig{Host: cfg.Engine.Host, Context: cfg.Engine.Context}
	engine, err := docker.NewEngine(endpoint, docker.Options{})
	if err == nil {
		err = engine.Close()
	}
	key := "engine.host"
	if cfg.Engine.Context != "" {
		key = "engine.context"
	}
	return keyDiagnostic(cfg, key, err)
}

// checkSandbox checks the sandbox root without creating it.
func checkSandbox(cfg *config.Config) *config.Diagnostic {
	if cfg.Sandbox.Root == "" {
		return nil
	}
	return keyDiagnostic(cfg, "sandbox.root", transfer.Check(cfg.Sandbox.Root))
}

// keyDiagnostic returns the diagnostic for an error about the value of a key, or nil.
func keyDiagnostic(cfg *config.Config, key string, err error) *config.Diagnostic {
	if err == nil {
		return nil
	}
	return &config.Diagnostic{
		Origin: cfg.Origin(key), Key: key, Problem: strings.TrimPrefix(err.Error(), key+": "),
		Suggestion: dray.AsError(err).Hint,
	}
}

func newConfigSchema(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON Schema of the configuration file",
		Long: `schema prints a JSON Schema (draft 2020-12) of the configuration file. Editors use it
to complete keys and to mark errors. Rules between several keys are checked by
dray config check only.`,
		Example: `  dray config schema > ~/.config/dray/schema.json
  # and as the first line of config.yaml: # yaml-language-server: $schema=schema.json`,
		Args: noArgs,
	}
	a.jsonFlag(cmd) // a schema is JSON in any case
	cmd.RunE = a.run(func(context.Context, []string) error {
		_, err := a.out.Write(config.Schema())
		return outputError(err)
	})
	return cmd
}

func newConfigExample(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "example",
		Short: "Print an annotated configuration file",
		Long: `example prints a configuration file with every key, described and commented out: with
its default, or with an example where it has none. As it is, it changes no setting.`,
		Example: "  dray config example > ~/.config/dray/config.yaml",
		Args:    noArgs,
	}
	cmd.RunE = a.run(func(context.Context, []string) error {
		_, err := a.out.Write(config.Example())
		return outputError(err)
	})
	return cmd
}

func newConfigShow(a *app) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective value and origin of each key",
		Long: `show prints every value that a daemon with these flags and environment variables
would use, one per line. Secrets are redacted. A running daemon may have another
configuration: dray reload applies this one. show does not use or start a daemon.`,
		Example: "  dray config show --origin\n  DRAY_LIMITS_TIMEOUT=5m dray config show --json",
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&origin, "origin", false,
		"show where each value was set: file, variable, flag or default")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runConfigShow(origin) })
	return cmd
}

// configItem is a setting in the JSON output of config show.
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

// writeConfig writes one line for each setting.
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

// configText formats a value on one line: a text without quotes if that is unambiguous, everything
// else as JSON.
func configText(v any) (string, error) {
	if s, ok := v.(string); ok && s != "" && s == strings.TrimSpace(s) && s == escapeLine(s) {
		return s, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode a configuration value: %w", err)
	}
	return escapeLine(string(safeJSON(b))), nil
}

// origins returns the variables and flags that set a value, each once, in the order of the
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
