package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

const pythonTool = "python"

// pythonFlags are the flags of python and of its subcommands.
type pythonFlags struct {
	callFlags
	session, runtime string
}

func (f *pythonFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.session, "session", "", "`name` of the session (default: default)")
	cmd.Flags().StringVar(&f.runtime, "runtime", "",
		"`runtime` of the session: container or pyodide (default: python.runtime)")
}

// input adds the session to the input of the tool python.
func (f *pythonFlags) input(cmd *cobra.Command, in pythonInput) (jsontext.Value, error) {
	for name, value := range map[string]string{"session": f.session, "runtime": f.runtime} {
		if cmd.Flags().Changed(name) && value == "" {
			return nil, usagef("--%s is empty", name).WithHint("omit it for the default")
		}
	}
	in.Session, in.Runtime = f.session, f.runtime
	input, err := json.Marshal(in)
	if err != nil {
		return nil, usagef("the code, or an argument, is not UTF-8").
			WithHint("save the code in a file, and pass such bytes on stdin")
	}
	return input, nil
}

// pythonInput is the input of the tool python.
type pythonInput struct {
	Session   string   `json:"session,omitzero"`
	Runtime   string   `json:"runtime,omitzero"`
	Operation string   `json:"operation,omitzero"`
	Code      string   `json:"code,omitzero"`
	File      string   `json:"file,omitzero"`
	Module    string   `json:"module,omitzero"`
	Name      string   `json:"name,omitzero"`
	State     string   `json:"state,omitzero"`
	Argv      []string `json:"argv,omitempty"`

	Requirements jsontext.Value `json:"requirements,omitzero"`
	Python       jsontext.Value `json:"python,omitzero"`
	Restart      string         `json:"restart,omitzero"`
}

// pythonProgram has the flags that name what to run. They are those of python3.
type pythonProgram struct {
	code, module string
	version      bool
}

func newPython(a *app) *cobra.Command {
	var flags pythonFlags
	var program pythonProgram
	cmd := &cobra.Command{
		Use:   "python [flags] [-c CODE | -m MODULE | FILE | -] [ARG...]",
		Short: "Run Python code in a session that stays",
		Long: `python runs code in a session: a Python process in the devcontainer of the workspace
that stays between commands. Variables, imports and loaded data of one command are
there in the next one with the same --session. Otherwise it behaves like python3: -c
runs CODE, FILE is a script, - reads the code from stdin, and stdin, stdout, stderr
and the exit code are those of the code. The value of the last expression is not
printed; --json prints the call with it.

With --runtime pyodide the code runs in a sandbox on the host, without a container. With
python.permissions.fs it works on a copy of the current directory, and its changes are
written when it ends by itself. Run dray python fetch once before.

Ctrl-C interrupts the code and keeps the session. A second Ctrl-C exits at once.

Flags of dray may also follow the program. Its own arguments begin with the first
flag that dray does not have, or after --. For a script with the name of a command
below, write ./NAME.

` + exitHelp,
		Example: "  dray python -c 'import csv; rows = list(csv.reader(open(\"sales.csv\")))'\n" +
			"  dray python -c 'print(len(rows))'\n" +
			"  dray python --session reports analyze.py --year 2026\n" +
			"  echo 'print(1 + 1)' | dray python -",
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{toolExitCodes: "yes", programArgs: "yes"},
	}
	flags.addWithoutSession(cmd)
	flags.add(cmd)
	cmd.Flags().StringVarP(&program.code, "command", "c", "", "run this `code`")
	cmd.Flags().StringVarP(&program.module, "module", "m", "", "run this `module` as a program")
	cmd.Flags().BoolVarP(&program.version, "version", "V", false, "print the version of Python")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		in, usesStdin, err := a.pythonProgram(cmd, program, args)
		if err != nil {
			return err
		}
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, pythonTool, nil)
		if err != nil {
			return err
		}
		var similar []string // commands that a missing script may be meant for
		if in.File != "" {
			similar = cmd.SuggestionsFor(in.File)
		}
		in.File = withoutDots(call.Cwd, in.File)
		if call.Input, err = flags.input(cmd, in); err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			return a.runPython(ctx, c, call, usesStdin, similar)
		})
	})
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newPythonStatus(a), newPythonReset(a), newPythonInterrupt(a), newPythonPrepare(a),
		newPythonFetch(a))
	return cmd
}

// pythonProgram returns the input for the program of the command line, and whether the program may
// read stdin.
func (a *app) pythonProgram(cmd *cobra.Command, p pythonProgram, args []string,
) (in pythonInput, stdin bool, err error) {
	isCode, isModule := cmd.Flags().Changed("command"), cmd.Flags().Changed("module")
	switch {
	case p.version:
		return pythonInput{State: "fresh", Code: printPythonVersion}, false, nil
	case isCode && isModule:
		return in, false, usagef("-c and -m exclude each other").WithHint("omit one of them")
	case isModule && p.module == "":
		return in, false, usagef("-m is empty").WithHint("name a module, such as json.tool")
	case isModule:
		return pythonInput{Module: p.module, Argv: args}, true, nil
	case isCode:
		// code may be empty, and a member of the input may not
		return pythonInput{Code: p.code + "\n", Name: "<string>", Argv: args}, true, nil
	case len(args) > 0 && args[0] == "":
		return in, false, usagef("the name of the script is empty").
			WithHint("name a file, or write - to read the code from stdin")
	case len(args) > 0 && args[0] != "-":
		return pythonInput{File: args[0], Argv: args[1:]}, true, nil
	case len(args) == 0 && isTerminal(a.in):
		return in, false, usagef("missing -c CODE, FILE or -").
			WithHint("for example: dray python -c 'print(1 + 1)'")
	}
	code, err := io.ReadAll(io.LimitReader(a.in, maxInput+1))
	if err != nil {
		return in, false, fmt.Errorf("read the code from stdin: %w", err)
	}
	if len(code) > maxInput {
		return in, false, dray.Errorf(dray.CodeTooLarge, "the code is longer than %d MiB", maxInput>>20)
	}
	args = args[min(1, len(args)):]
	return pythonInput{Code: string(code) + "\n", Name: "<stdin>", Argv: args}, false, nil
}

// withoutDots returns a file of the host without "..", which the daemon refuses: it does not see
// the symlinks on the way. A file that is not on the host is returned unchanged.
func withoutDots(cwd, file string) string {
	if !slices.Contains(strings.Split(file, "/"), "..") || cwd == "" {
		return file
	}
	path := file
	if !filepath.IsAbs(path) {
		path = cwd + "/" + file // not cleaned: EvalSymlinks resolves each "..", as the kernel does
	}
	if path, err := filepath.EvalSymlinks(path); err == nil {
		return path
	}
	return file
}

const printPythonVersion = `import platform
print("Python", platform.python_version())
`

func (a *app) runPython(ctx context.Context, c *client.Client, call client.Call, stdin bool,
	similar []string,
) error {
	l := a.newLiveCall(c, call)
	if stdin {
		l.stdin = callerStdin(a.in)
	}
	result, err := l.run(ctx)
	if err != nil {
		return err
	}
	if e := result.record.Error; e != nil && e.Code == dray.CodeNotFound && len(similar) > 0 {
		e.Hint = "for the command run: dray python " + strings.Join(similar, ", or: dray python ")
	}
	if !a.json {
		a.printTraceback(result.record)
		a.printDiscarded(result.record)
	}
	err = a.finish(result)
	if code := refusedCode(result.record); code != exitOK && errors.As(err, new(exitError)) {
		return exitError(code)
	}
	return err
}

// refusedCode returns the code of a call that the runtime of the session refused, 2 as for a wrong
// command line of python3 (PY-13), else 0.
func refusedCode(rec dray.Record) int {
	var out struct {
		Code int `json:"code"`
	}
	if rec.Reason != dray.ReasonInvalid || json.Unmarshal(rec.Output, &out) != nil {
		return exitOK
	}
	return out.Code
}

// printDiscarded reports that variables of earlier commands are lost, which explains a NameError or
// a wrong result (PY-06).
func (a *app) printDiscarded(rec dray.Record) {
	var out struct {
		Session   string `json:"session"`
		Discarded bool   `json:"discarded_state"`
	}
	if json.Unmarshal(rec.Output, &out) != nil || !out.Discarded {
		return
	}
	a.printError((&dray.Error{
		Message: fmt.Sprintf("the variables of earlier calls in the Python session %q are lost",
			out.Session),
	}).WithHint("run the code that made them again"))
}

// printTraceback prints the traceback or the message of code that ended by itself, as python3 does.
func (a *app) printTraceback(rec dray.Record) {
	var out struct {
		Error *struct {
			Message   string `json:"message"`
			Traceback string `json:"traceback"`
		} `json:"error"`
	}
	known := rec.Error != nil && rec.Error.Code != "" // it is printed as an error of dray
	if known || rec.Reason != dray.ReasonExited || json.Unmarshal(rec.Output, &out) != nil ||
		out.Error == nil {
		return
	}
	text := out.Error.Traceback
	if text == "" {
		text = out.Error.Message
	}
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintln(a.err, escapeText(text))
	}
}

// programArgs is the annotation of commands whose arguments belong to a program.
const programArgs = "program-args"

// separateProgramArgs returns a command line with -- before the first argument of the program that
// looks like a flag and is no flag of the command, or that has the name of a subcommand.
func separateProgramArgs(root *cobra.Command, args []string) []string {
	at := firstOperand(root, args)
	if at == len(args) {
		return args
	}
	cmd, _, err := root.Find(args[at : at+1])
	if err != nil || cmd.Annotations[programArgs] == "" {
		return args
	}
	cmd.InitDefaultHelpFlag()
	named := false // the program is known
	for i := at + 1; i < len(args); i++ {
		isFlag := strings.HasPrefix(args[i], "-") && args[i] != "-"
		flag := findFlag(cmd, args[i])
		if named && flag.name == "help" {
			flag.name = ""
		}
		sub, _, _ := cmd.Find(args[i : i+1])
		switch {
		case args[i] == "--", !named && isFlag && flag.name == "", !named && !isFlag && sub != cmd:
			return args
		case isFlag && flag.name == "", !isFlag && sub != cmd:
			return slices.Insert(slices.Clone(args), i, "--")
		case !isFlag:
			named = true
		default:
			named = named || flag.name == "command" || flag.name == "module"
			if flag.takesNext {
				i++
			}
		}
	}
	return args
}

// firstOperand returns the index of the first argument that is neither a flag nor its value.
func firstOperand(cmd *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			return i
		}
		if findFlag(cmd, args[i]).takesNext {
			i++
		}
	}
	return len(args)
}

// foundFlag is the flag that an argument names. The name is empty if the command has none.
type foundFlag struct {
	name string
	// takesNext reports whether the next argument is its value.
	takesNext bool
}

func findFlag(cmd *cobra.Command, arg string) foundFlag {
	if name, isLong := strings.CutPrefix(arg, "--"); isLong {
		name, _, hasValue := strings.Cut(name, "=")
		flag := cmd.Flag(name)
		if flag == nil {
			return foundFlag{}
		}
		return foundFlag{flag.Name, !hasValue && flag.NoOptDefVal == ""}
	}
	for i := 1; i < len(arg); i++ {
		flag := cmd.Flags().ShorthandLookup(arg[i : i+1])
		switch {
		case flag == nil:
			return foundFlag{}
		case flag.NoOptDefVal == "":
			return foundFlag{flag.Name, i+1 == len(arg)}
		case i+1 == len(arg):
			return foundFlag{flag.Name, false}
		}
	}
	return foundFlag{}
}

func newPythonStatus(a *app) *cobra.Command {
	return a.pythonOperation("status", "List the Python sessions of this workspace",
		`status lists your sessions in the container of the workspace, and those of the runtime
pyodide in the workspace, with the state of their processes. --runtime lists those of
one runtime, and --session only one session. Sessions in the states cold and dead have
no process: the next call starts one.`,
		func(out pythonOutput) error {
			t := table{head: []string{"SESSION", "RUNTIME", "STATE", "GENERATION"}}
			for _, s := range out.Sessions {
				t.add(s.Session, s.Runtime, s.State, fmt.Sprint(s.Generation))
			}
			return t.write(a.out)
		})
}

func newPythonReset(a *app) *cobra.Command {
	return a.pythonOperation("reset", "End the process of a Python session",
		`reset ends the process of a session at once, also while it runs code. All its
variables are lost. The next call starts a new process, with the packages that
prepare installed.`,
		func(out pythonOutput) error {
			_, err := fmt.Fprintln(a.out, escapeLine(out.Session+": reset"))
			return outputError(err)
		})
}

func newPythonInterrupt(a *app) *cobra.Command {
	return a.pythonOperation("interrupt", "Interrupt the code that runs in a Python session",
		`interrupt raises KeyboardInterrupt in the code that runs in a session, which keeps its
variables. Code that catches it goes on: dray python reset ends that.`,
		func(out pythonOutput) error {
			text := out.Session + ": nothing runs"
			if out.Interrupted {
				text = out.Session + ": interrupted"
			}
			_, err := fmt.Fprintln(a.out, escapeLine(text))
			return outputError(err)
		})
}

// pythonOutput is what the operations on sessions return.
type pythonOutput struct {
	Session     string `json:"session"`
	Interrupted bool   `json:"interrupted"`
	Changed     bool   `json:"changed"`
	Restarted   bool   `json:"restarted"`
	Python      struct {
		Version string `json:"version"`
		Prefix  string `json:"prefix"`
	} `json:"python"`
	Installed []string `json:"installed"`
	Removed   []string `json:"removed"`
	Sessions  []struct {
		Session    string `json:"session"`
		Runtime    string `json:"runtime"`
		State      string `json:"state"`
		Generation int    `json:"generation"`
	} `json:"sessions"`
}

// pythonOperation returns the command for an operation that runs no code.
func (a *app) pythonOperation(name, short, long string, text func(pythonOutput) error,
) *cobra.Command {
	var flags pythonFlags
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Args: noArgsBySession,
		Example: "  dray python " + name + "\n  dray python " + name + " --session reports",
	}
	flags.addPlace(cmd)
	flags.add(cmd)
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		input, err := flags.input(cmd, pythonInput{Operation: name})
		if err != nil {
			return err
		}
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, pythonTool, input)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runOperation(ctx, c, call, text) })
	})
	return cmd
}

// runOperation makes a call and prints its structured output, or its JSON with --json. A call that
// failed fails the command with its error.
func (a *app) runOperation(ctx context.Context, c *client.Client, call client.Call,
	text func(pythonOutput) error,
) error {
	result, err := a.newLiveCall(c, call).run(ctx)
	if err != nil {
		return err
	}
	rec := result.record
	if a.json {
		if err := a.printRaw(result.json); err != nil || rec.Status == dray.StatusSucceeded {
			return err
		}
		return exitError(exitOfCode(endError(rec, "").Code))
	}
	if rec.Status != dray.StatusSucceeded {
		if rec.Error != nil && rec.Error.Code != "" {
			return rec.Error
		}
		return endError(rec, "the operation failed")
	}
	var out pythonOutput
	if err := json.Unmarshal(rec.Output, &out); err != nil {
		return fmt.Errorf("decode the output of %s: %w", call.Tool, err)
	}
	return text(out)
}
