package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

// preparedSession has the flags of python prepare.
type preparedSession struct {
	remove, set                        bool
	version, executable, venv, restart string
}

// requirementsInput and interpreterInput are members of the input of operation prepare.
type requirementsInput struct {
	Packages []string `json:"packages,omitempty"`
	Version  string   `json:"python_version,omitzero"`
	Action   string   `json:"action,omitzero"`
}

type interpreterInput struct {
	Executable string `json:"executable,omitzero"`
	Venv       string `json:"venv,omitzero"`
}

func newPythonPrepare(a *app) *cobra.Command {
	var flags pythonFlags
	var p preparedSession
	cmd := &cobra.Command{
		Use:   "prepare [flags] [PACKAGE...]",
		Short: "Install packages for a Python session",
		Long: `prepare adds packages to those that a session asks for, which are numpy at first, and
makes a virtual environment with exactly them. uv does that in the container, as the
user of the session, from wheels; uv has to be installed there. Without PACKAGE it
installs the packages that the session asks for already.

PACKAGE is a name with extras and versions: pandas, 'numpy>=2', 'pandas[excel]'. It
replaces a package of the same name. --executable and --venv use an interpreter of
your own instead.

Another interpreter needs another process, so the variables of the session are lost.
--restart no refuses that. If prepare fails or is cancelled, nothing has changed.`,
		Example: "  dray python prepare pandas openpyxl\n" +
			"  dray python prepare --session reports --python-version 3.12 'numpy>=2'\n" +
			"  dray python prepare --remove openpyxl\n" +
			"  dray python prepare --venv /opt/venv",
		Args: cobra.ArbitraryArgs,
	}
	flags.addPlace(cmd)
	flags.add(cmd)
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 0,
		"maximum `time` of the call, such as 10m (default: python.wall)")
	p.addFlags(cmd)
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		in, err := p.input(cmd, args)
		if err != nil {
			return err
		}
		input, err := flags.input(cmd, in)
		if err != nil {
			return err
		}
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, pythonTool, input)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			return a.runOperation(ctx, c, call, a.printPrepared)
		})
	})
	return cmd
}

func (p *preparedSession) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&p.remove, "remove", false, "remove the packages that PACKAGE names")
	flags.BoolVar(&p.set, "set", false, "ask for PACKAGE only, and for no other package")
	flags.StringVar(&p.version, "python-version", "",
		"use this `version` of Python, such as 3.12, which has to be installed")
	flags.StringVar(&p.executable, "executable", "",
		"use this interpreter, an absolute `path` in the container")
	flags.StringVar(&p.venv, "venv", "",
		"use this virtual environment, an absolute `path` in the container")
	flags.StringVar(&p.restart, "restart", "",
		"`when` to replace the process of the session: if_needed (default), no or yes")
	cmd.MarkFlagsMutuallyExclusive("remove", "set", "executable", "venv")
	cmd.MarkFlagsMutuallyExclusive("python-version", "executable", "venv")
}

// input returns the input of the tool python. The daemon checks the values.
func (p *preparedSession) input(cmd *cobra.Command, packages []string) (pythonInput, error) {
	in := pythonInput{Operation: "prepare", Restart: p.restart}
	for _, name := range []string{"python-version", "executable", "venv", "restart"} {
		if cmd.Flags().Changed(name) && cmd.Flag(name).Value.String() == "" {
			return in, usagef("--%s is empty", name).WithHint("give it a value, or omit it")
		}
	}
	explicit := p.executable != "" || p.venv != ""
	switch {
	case explicit && len(packages) > 0:
		return in, usagef("PACKAGE cannot be combined with --executable or --venv").
			WithHint("omit PACKAGE, and install it into that environment yourself")
	case (p.remove || p.set) && len(packages) == 0 && p.version == "":
		return in, usagef("missing PACKAGE").WithHint("for example: dray python prepare pandas")
	}
	if explicit {
		return in, p.marshal(&in.Python, interpreterInput{p.executable, p.venv})
	}
	requirements := requirementsInput{Packages: packages, Version: p.version}
	switch {
	case p.remove:
		requirements.Action = "remove"
	case p.set:
		requirements.Action = "set"
	}
	return in, p.marshal(&in.Requirements, requirements)
}

func (*preparedSession) marshal(into *jsontext.Value, from any) (err error) {
	if *into, err = json.Marshal(from); err != nil {
		return usagef("an argument is not UTF-8")
	}
	return nil
}

// printPrepared prints what has changed, and the interpreter.
func (a *app) printPrepared(out pythonOutput) error {
	var text strings.Builder
	for _, name := range out.Removed {
		fmt.Fprintln(&text, escapeLine("- "+name))
	}
	for _, name := range out.Installed {
		fmt.Fprintln(&text, escapeLine("+ "+name))
	}
	line := fmt.Sprintf("%s: Python %s, %s", out.Session, out.Python.Version, out.Python.Prefix)
	switch {
	case !out.Changed:
		line += "; nothing has changed"
	case out.Restarted:
		line += "; its variables are lost"
	}
	fmt.Fprintln(&text, escapeLine(line))
	_, err := fmt.Fprint(a.out, text.String())
	return outputError(err)
}
