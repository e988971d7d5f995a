package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/wire"
)

// Execute runs one command line, without the program's name, and returns the exit code. Of the
// goroutines that it starts, only one blocked in a read of in may still run when it returns.
func Execute(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	return execute(ctx, args, &app{in: in, out: out, err: err, newService: openDaemon})
}

// app is the state that all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	// newService opens a daemon; only serve calls it.
	newService serviceFactory
	// The global flags.
	state, config string
	// json is the flag --json, utc the flag --utc.
	json, utc bool
	// running is set when the command line has been parsed.
	running bool
}

func execute(ctx context.Context, args []string, a *app) int {
	root := newRoot(a) //nolint:contextcheck // cobra hands the context to the commands
	args = separateProgramArgs(root, args)
	root.SetArgs(args)
	help := &helpWriter{Writer: a.out}
	if isTerminal(a.out) {
		help.width = columns(a.out)
	}
	root.SetOut(help)
	cmd, err := root.ExecuteContextC(ctx)
	help.flush()
	switch {
	case help.err != nil:
		err = outputError(help.err)
	case err == nil:
		return exitOK
	case !a.running || errors.As(err, new(usageError)):
		err = usageErrorFrom(cmd, err)
		a.json = a.json || asksForJSON(cmd, args)
	}
	err = commandHint(cmd, err)
	a.reportError(err)
	if cmd.Annotations[toolExitCodes] != "" {
		return toolExitCode(err)
	}
	return exitCode(err)
}

// asksForJSON reports whether --json is among the flags of a command line. Flags are read only up
// to the first one that is invalid.
func asksForJSON(cmd *cobra.Command, args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return cmd.Flags().Lookup("json") != nil && slices.Contains(args, "--json")
}

// helpWriter keeps the first error of a write: cobra ignores those of help texts. It fits them to a
// terminal of a width above 0.
type helpWriter struct {
	io.Writer
	width int
	text  strings.Builder // for the terminal
	err   error
}

func (w *helpWriter) Write(p []byte) (int, error) {
	if w.width > 0 {
		return w.text.Write(p)
	}
	n, err := w.Writer.Write(p)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// flush prints the text for the terminal.
func (w *helpWriter) flush() {
	if w.text.Len() > 0 {
		_, w.err = io.WriteString(w.Writer, wrapHelp(w.text.String(), w.width))
	}
}

// toolExitCodes is the annotation of commands with the exit codes of `dray exec`.
const toolExitCodes = "exits-like-tool"

// otherCommands is the title of the commands that need no daemon and no configuration.
const otherCommands = "Other Commands:"

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "dray",
		Short: "Run tools on the host or in the project's devcontainer",
		Long: `dray runs tools on the host or in the project's devcontainer, maps their paths
both ways, and records every call in an audit log. Commands use the daemon of the
state directory, and start it if it is not running.

` + exitHelpOthers,
		Example: "  dray exec -- go test ./...\n  dray workspace trust\n  dray audit list --limit 5",
	}
	root.PersistentFlags().StringVar(&a.state, "state", "",
		"state `directory` (default: $DRAY_STATE, ~/.local/state/dray)")
	root.PersistentFlags().StringVar(&a.config, "config", "",
		"configuration `file` (default: $DRAY_CONFIG, ~/.config/dray/config.yaml)")
	addGroup(root, "Call Commands:", newExec(a), newPython(a), newCall(a), newSync(a), newPs(a),
		newCancel(a), newAudit(a))
	addGroup(root, "Project Commands:", newWorkspace(a), newContainer(a), newApprovals(a),
		newPolicy(a), newTools(a), newRoute(a), newPath(a))
	addGroup(root, "Daemon Commands:", newStatus(a), newServe(a), newReload(a), newStop(a),
		newMCP(a), newConfig(a), newDoctor(a))
	addGroup(root, otherCommands, newVersion(a), newCompletion(a))
	addHelp(root)
	a.addCompletions(root)
	// a group of commands cannot be run by itself, so its usage line is left out
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		`{{if and .Runnable (or (not .HasAvailableSubCommands) (ne .Use .Name))}}`, 1))
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = thisBuild().Version
	root.SetVersionTemplate("dray {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version") // without a shorthand
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetErr(a.err)
	return group(root)
}

// run returns the RunE of a command. Errors that cobra returns before it is called are usage
// errors.
func (a *app) run(
	do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return do(cmd.Context(), args)
	}
}

// jsonFlag adds --json to a command.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON value")
}

// utcFlag adds --utc to a command that prints times.
func (a *app) utcFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.utc, "utc", false,
		"print and read times in UTC (default: the local time zone)")
}

// zone is the time zone of printed times, and of times in flags that have no offset.
func (a *app) zone() *time.Location {
	if a.utc {
		return time.UTC
	}
	return time.Local
}

// group completes a command that only has subcommands: without one it prints its help, and for an
// unknown one it suggests a similar name.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := usagef("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return err.WithHint("did you mean %s %s?", cmd.CommandPath(), strings.Join(near, ", "))
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

// usageErrorFrom returns the usage error for an error from cobra or from us, with a hint.
func usageErrorFrom(cmd *cobra.Command, err error) error {
	var known usageError
	if !errors.As(err, &known) {
		known = cobraError(err)
	}
	if known.err.Hint != "" {
		return known
	}
	if near := similarFlag(cmd, known.err.Message); near != "" {
		return known.WithHint("did you mean --%s? see %s --help", near, cmd.CommandPath())
	}
	return known.WithHint("see %s --help", cmd.CommandPath())
}

// similarFlag returns the flag of a command that the unknown one in an error of cobra may be a
// misspelling of, or "".
func similarFlag(cmd *cobra.Command, message string) string {
	name, ok := strings.CutPrefix(message, "unknown flag: --")
	if !ok {
		return ""
	}
	var known []string
	for _, flag := range flagLine.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		known = append(known, flag[1])
	}
	return lexical.Closest(name, known)
}

// flagLine matches the beginning of a flag's line in a help text.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)

// cobraError rewrites cobra's error messages in our wording.
func cobraError(err error) usageError {
	first, _, _ := strings.Cut(err.Error(), "\n")
	said, cause, _ := strings.Cut(strings.TrimPrefix(first, "invalid argument "), " flag: ")
	at := max(strings.LastIndex(said, " for "), 0)
	value, flag := said[:at], strings.Trim(strings.TrimPrefix(said[at:], " for "), `"`)
	switch {
	case strings.HasPrefix(cause, "time: "):
		return usagef("invalid duration %s for %s", value, flag).
			WithHint("use a number and a unit, such as 90s, 5m or 1h30m")
	case strings.HasPrefix(cause, "strconv.ParseInt: "):
		return usagef("invalid integer %s for %s", value, flag)
	default:
		return usagef("%s", first)
	}
}

// commandHint replaces a hint for users of the HTTP interface.
func commandHint(cmd *cobra.Command, err error) error {
	known, ok := errors.AsType[*dray.Error](err)
	if !ok || !strings.Contains(known.Hint, "/openapi.json") {
		return err
	}
	return dray.AsError(err).WithHint("see %s --help", cmd.CommandPath())
}

// reportError prints an error on stderr and, with --json, on stdout too.
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

// printError writes an error to stderr: message and code, details, hint.
func (a *app) printError(e *dray.Error) {
	line, more, _ := strings.Cut(escapeText(e.Message), "\n")
	if e.Code != "" {
		text, isTitle := strings.CutSuffix(line, ":")
		line = text + " (" + string(e.Code) + ")"
		if isTitle {
			line += ":"
		}
	}
	fmt.Fprintln(a.err, "dray: "+line)
	if more != "" {
		fmt.Fprintln(a.err, more)
	}
	for _, d := range e.Details {
		if strings.Contains(e.Message, d.Message) {
			continue
		}
		fmt.Fprintf(a.err, "  %s: %s\n", escapeLine(d.Pointer), escapeLine(d.Message))
	}
	if e.Hint != "" {
		fmt.Fprintln(a.err, "hint: "+escapeText(e.Hint))
	}
}

// asError returns the error as the user sees it. An invalid configuration lists its diagnostics in
// its message.
func asError(err error) *dray.Error {
	var invalid *config.InvalidError
	var known *dray.Error
	if errors.As(err, &invalid) && !errors.As(err, &known) {
		return dray.Errorf(dray.CodeInvalidRequest, "%w", err)
	}
	return dray.AsError(err)
}

// printJSON writes one JSON value and a newline.
func (a *app) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	return a.printRaw(b)
}

// printReply prints a reply of the daemon: its JSON with --json, else with text.
func printReply[T any](a *app, reply client.Reply[T], err error, text func(T) error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printRaw(reply.JSON)
	default:
		return text(reply.Value)
	}
}

// printRaw writes JSON from the daemon and a newline.
func (a *app) printRaw(b []byte) error {
	_, err := a.out.Write(append(safeJSON(b), '\n'))
	return outputError(err)
}

// outputError returns the error for a failed write of output, or nil. On a closed pipe the command
// exits like a program that received SIGPIPE.
func outputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return exitError(exitSignal + int(syscall.SIGPIPE))
	default:
		return dray.Errorf(dray.CodeInternal, "write the output: %w", err).
			WithHint("free some space where the output is written, and repeat the command")
	}
}

// addHelp adds cobra's help command, changed so that an unknown name is an error.
func addHelp(root *cobra.Command) {
	root.SetHelpCommandGroupID(otherCommands)
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
		return usagef("unknown command %q for %q", rest[0], target.CommandPath()).
			WithHint("see %s --help", target.CommandPath())
	}
	return usageErrorFrom(target, target.Args(target, rest))
}

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Example: "  source <(dray completion bash)\n" +
			"  dray completion fish > ~/.config/fish/completions/dray.fish",
		ValidArgs:             shells,
		Args:                  oneArg("the name of a shell", "use bash, zsh or fish"),
		DisableFlagsInUseLine: true,
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		switch root := cmd.Root(); args[0] {
		case "bash":
			return outputError(root.GenBashCompletionV2(a.out, true))
		case "zsh":
			return outputError(root.GenZshCompletion(a.out))
		case "fish":
			return outputError(root.GenFishCompletion(a.out, true))
		default:
			return usagef("unknown shell %q", args[0]).WithHint("use bash, zsh or fish")
		}
	})
	return cmd
}

// version and commit are set by the build (-ldflags -X). Without them the values that the Go
// command recorded are used.
var version, commit string

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runVersion(thisBuild()) })
	return cmd
}

// build describes how this program was built.
type build struct {
	Version string `json:"version"`
	// Commit is empty if the program was not built in a checkout. Modified reports whether the
	// checkout had changes.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// AgentProtocol is the newest protocol version between daemon and agent.
	AgentProtocol int `json:"agent_protocol"`
}

func thisBuild() build {
	b := build{
		Version: version, Commit: commit, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, AgentProtocol: wire.MaxProtocol,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version, "devel")
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
		from += " (modified)"
	}
	_, err := fmt.Fprintf(a.out, "dray %s\ncommit %s\n%s %s\nagent protocol %d\n", b.Version, from,
		b.Go, b.Platform, b.AgentProtocol)
	return outputError(err)
}
