package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/transfer"
)

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
		found.Mistakes = append(found.Mistakes, diagnosticJSON{Origin: m.Origin.String(), Key: m.Key, Value: m.Value, Problem: m.Problem, Fix: m.Suggestion})
	}
	if err := a.printJSON(found); err != nil {
		return err
	}
	return exitError(exitUsage)
}

// checkStart finds what would keep a daemon with this configuration from starting, all of it. It is a [*config.InvalidError].
func checkStart(cfg *config.Config) error {
	mistakes := checkTools(cfg)
	for _, one := range []func(*config.Config) (config.Diagnostic, bool){checkRouting, checkEngine, checkSandbox} {
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

// toolMistake finds the key that an error of a tool begins with, to say where it stands. Where it has none the tool's name says it.
func toolMistake(cfg *config.Config, i int, err error) config.Diagnostic {
	key := fmt.Sprintf("tools[%d]", i)
	m := config.Diagnostic{Origin: cfg.Origin(key + ".name"), Key: key, Problem: err.Error(), Suggestion: "correct the tool"}
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
	return config.Diagnostic{Origin: config.Origin{File: cfg.File}, Key: "routing", Problem: err.Error(), Suggestion: fix}, true
}

// checkEngine chooses the engine and does not connect to it: whether it answers is not the configuration's business.
func checkEngine(cfg *config.Config) (config.Diagnostic, bool) {
	engine, err := container.NewEngine(container.EndpointConfig{Host: cfg.Engine.Host, Context: cfg.Engine.Context}, container.Options{})
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
	return config.Diagnostic{Origin: cfg.Origin(key), Key: key, Problem: err.Error(), Suggestion: dray.AsError(err).Hint}, true
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
	return config.Diagnostic{Origin: cfg.Origin(key), Key: key, Problem: strings.TrimPrefix(err.Error(), key+": "), Suggestion: dray.AsError(err).Hint}, true
}
