package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/wire"
)

// Execute runs one command line, without the program's name, and returns the exit code. Nothing
// that it starts in this process outlives it but a read of `in` that is not over, and that nobody
// can end.
func Execute(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	return execute(ctx, args, &app{in: in, out: out, err: err, open: openDaemon})
}

// app is what all commands have in common.
type app struct {
	in       io.Reader
	out, err io.Writer
	// open makes a daemon; serve alone calls it.
	open serviceFactory
	// The global flags.
	state, config string
	// json is set by commands that were asked for it.
	json bool
	// running is set once the command line is understood.
	running bool
}

func execute(ctx context.Context, args []string, a *app) int {
	root := newRoot(a) //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.running || errors.As(err, new(usageError)) {
		err = usageErrorFrom(cmd, err)
	}
	err = commandHint(cmd, err)
	a.reportError(err)
	if cmd.Annotations[toolExitCodes] != "" {
		return toolExitCode(err)
	}
	return exitCode(err)
}

// toolExitCodes marks the commands whose exit codes are those of `dray exec`.
const toolExitCodes = "exits-like-tool"

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "dray",
		Short: "Run tools on the host or in the project's devcontainer",
		Long: `dray runs tools on the host or in the project's devcontainer, maps their paths
both ways, and keeps a trail of every call. Commands use the daemon of the state
folder, and start it where it does not run.

` + exitHelpOthers,
		Example: "  dray exec -- go test ./...\n  dray workspace trust\n  dray audit list --limit 5",
	}
	root.PersistentFlags().StringVar(&a.state, "state", "", "state `folder` (default $DRAY_STATE, ~/.local/state/dray)")
	root.PersistentFlags().StringVar(&a.config, "config", "", "configuration `file` (default $DRAY_CONFIG, ~/.config/dray/config.yaml)")
	root.AddCommand(
		newExec(a), newCall(a), newTools(a), newRoute(a), newPath(a), newSync(a), newWorkspace(a), newAudit(a), newConfig(a), newServe(a), newVersion(a), newCompletion(a),
	)
	addHelp(root)
	root.SetUsageTemplate(usage(root))
	root.CompletionOptions.DisableDefaultCmd = true
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return group(root)
}

// run wraps what a command does, so that errors before it are known as wrong usage.
func (a *app) run(do func(ctx context.Context, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return do(cmd.Context(), args)
	}
}

// jsonFlag adds --json to a command.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON value")
}

// group makes a command that only has others beneath it: alone it shows its help, and an unknown
// name is an error that suggests a known one.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := usagef("unknown command %q", cmd.CommandPath()+" "+args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return err.WithHint("did you mean: %s %s", cmd.CommandPath(), strings.Join(near, ", "))
		}
		return err
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return cmd.Args(cmd, args) // the flag belongs to a command that does not exist
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// usage is cobra's template without the line that shows a group of commands as one that can be run
// by itself.
func usage(root *cobra.Command) string {
	return strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		"{{if and .Runnable (not .HasAvailableSubCommands)}}", 1)
}

// usageErrorFrom turns what is said about a command line, by cobra or by us, into an error with a
// code and a hint.
func usageErrorFrom(cmd *cobra.Command, err error) error {
	var known usageError
	if !errors.As(err, &known) {
		known = cobraError(err)
	}
	if known.err.Hint == "" {
		known = known.WithHint("see %s --help", cmd.CommandPath())
	}
	return known
}

// cobraError says in our words what cobra could not read.
func cobraError(err error) usageError {
	first, _, _ := strings.Cut(err.Error(), "\n")
	said, cause, _ := strings.Cut(strings.TrimPrefix(first, "invalid argument "), " flag: ")
	at := max(strings.LastIndex(said, " for "), 0)
	value, flag := said[:at], strings.Trim(strings.TrimPrefix(said[at:], " for "), `"`)
	switch {
	case strings.HasPrefix(cause, "time: "):
		return usagef("%s %s is no time", flag, value).
			WithHint("write a number and its unit, such as 90s, 5m or 1h30m")
	case strings.HasPrefix(cause, "strconv.ParseInt: "):
		return usagef("%s %s is no whole number", flag, value)
	default:
		return usagef("%s", first)
	}
}

// commandHint puts a command in the place of a hint that is for those who speak HTTP.
func commandHint(cmd *cobra.Command, err error) error {
	known, ok := errors.AsType[*dray.Error](err)
	if !ok || !strings.Contains(known.Hint, "/openapi.json") {
		return err
	}
	return dray.AsError(err).WithHint("see %s --help", cmd.CommandPath())
}

// reportError tells people on stderr what went wrong and, where JSON was asked for, programs on
// stdout.
func (a *app) reportError(err error) {
	if errors.As(err, new(exitError)) || errors.Is(err, errInterrupted) {
		return
	}
	e := asError(err)
	a.printError(e)
	if a.json {
		_ = a.printJSON(struct {
			Error *dray.Error `json:"error"`
		}{e})
	}
}

// printError writes an error to stderr: what happened with its code, then the details, then what to
// do next.
func (a *app) printError(e *dray.Error) {
	line, more, _ := strings.Cut(escapeText(e.Message), "\n")
	if e.Code != "" {
		line += " (" + string(e.Code) + ")"
	}
	fmt.Fprintln(a.err, "dray: "+line)
	if more != "" {
		fmt.Fprintln(a.err, more)
	}
	for _, d := range e.Details {
		if strings.Contains(e.Message, d.Message) {
			continue // said already
		}
		fmt.Fprintf(a.err, "  %s: %s\n", escapeLine(d.Pointer), escapeLine(d.Message))
	}
	if e.Hint != "" {
		fmt.Fprintln(a.err, "hint: "+escapeText(e.Hint))
	}
}

// asError finds what a user may see of an error. A configuration that cannot be used names its
// mistakes and their fixes itself.
func asError(err error) *dray.Error {
	var mistakes *config.InvalidError
	var known *dray.Error
	if errors.As(err, &mistakes) && !errors.As(err, &known) {
		return dray.Errorf(dray.CodeInvalidRequest, "%w", err)
	}
	return dray.AsError(err)
}

// printJSON writes one JSON value and a newline.
func (a *app) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	return a.printRaw(b)
}

// printRaw writes JSON that came from the daemon.
func (a *app) printRaw(b []byte) error {
	_, err := a.out.Write(append(safeJSON(b), '\n'))
	return outputError(err)
}

// outputError is the error of writing output, if there is one. Where nobody reads it any more we
// end as any program does that writes into a closed pipe.
func outputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return exitError(exitSignal + int(syscall.SIGPIPE))
	default:
		return dray.Errorf(dray.CodeInternal, "passing the output on: %w", err).
			WithHint("make room where it is written to, and repeat the command")
	}
}

// addHelp adds cobra's command help, which takes a name that it does not know for none at all.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Run, cmd.RunE = nil, runHelp
		}
	}
}

func runHelp(cmd *cobra.Command, args []string) error {
	target, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) == 0 {
		return errors.Join(err, target.Help())
	}
	if !target.HasSubCommands() {
		return usagef("%s has no commands, and %q is none", target.CommandPath(), rest[0]).
			WithHint("see %s --help", target.CommandPath())
	}
	return usageErrorFrom(target, target.Args(target, rest))
}

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	cmd := &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "Print the completion script of a shell",
		Example:               "  source <(dray completion bash)\n  dray completion fish > ~/.config/fish/completions/dray.fish",
		ValidArgs:             shells,
		Args:                  exactArgs(1, "the name of a shell", "one of bash, zsh, fish"),
		DisableFlagsInUseLine: true,
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		switch root := cmd.Root(); args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		default:
			return usagef("there are no completions for %q", args[0]).WithHint("one of bash, zsh, fish")
		}
	})
	return cmd
}

// version and commit are set by the build (-ldflags -X); a build without them takes what the Go
// command recorded.
var version, commit string

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runVersion(thisBuild()) })
	return cmd
}

// build is what this program was made from.
type build struct {
	Version string `json:"version"`
	// Commit is empty where the program was not built in a checkout; Modified says that the checkout
	// had changes.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// AgentProtocol is the newest version of what daemon and agent speak.
	AgentProtocol int `json:"agent_protocol"`
}

func thisBuild() build {
	b := build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" +
		runtime.GOARCH, AgentProtocol: wire.MaxProtocol}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) runVersion(b build) error {
	if a.json {
		return a.printJSON(b)
	}
	from := cmp.Or(b.Commit, "unknown")
	if b.Modified {
		from += " and changes"
	}
	_, err := fmt.Fprintf(a.out, "dray %s\ncommit %s\n%s %s\nagent protocol %d\n", b.Version, from,
		b.Go, b.Platform, b.AgentProtocol)
	return outputError(err)
}
