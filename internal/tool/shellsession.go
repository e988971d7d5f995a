package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// sessionInput are the members of exec and shell that name a session (SS-01).
type sessionInput struct {
	Session string `json:"session"`
	End     bool   `json:"end"`
}

// sessionOf returns the session that an input of exec, shell or python names, or "".
func sessionOf(input json.RawMessage) string {
	var in sessionInput
	_ = json.Unmarshal(input, &in) // an input that is not valid ends the call
	return in.Session
}

// shellState is what a session keeps between its commands: the working directory, and how the
// exported variables differ from those of a call without the session.
type shellState struct {
	cwd   string // empty: that of the call
	set   map[string]string
	unset map[string]bool
	// functions has the text of the functions by shell; shells do not read each other's.
	functions map[string]string
}

const (
	// maxPrelude bounds the text that restores variables and the functions of all shells. With the
	// rest of the script it is one argument, for which the kernel accepts 128 KiB.
	maxPrelude = 120 << 10
	// maxVariable bounds a variable, for the same reason.
	maxVariable = 120 << 10
	// maxSessionPath bounds the working directory (PATH_MAX).
	maxSessionPath = 4096
	// maxRefusedNames bounds the names of refused variables in a report.
	maxRefusedNames = 32
	// variablePrefix begins the variables in which the values come. The prelude gives them their own
	// names, after remoteEnv and the probe of the shell have set theirs.
	variablePrefix = "DRAY_SESSION_VALUE_"
)

// sessionScript saves the state when the shell exits, restores it, and then runs the command. It is
// POSIX shell. The two environments are those at the start and at the end of the shell.
const sessionScript = `__dray_state=${DRAY_RESULTS:+$DRAY_RESULTS/` + dray.SessionStateName + `}
trap '{ set +x; } 2>/dev/null
if [ -n "${__dray_state-}" ]; then
{ \printf "%s\000" "$PWD"
\printf "\000" | \command -p cat "/proc/$$/environ" - /proc/self/environ
\printf "\000"
if [ -n "${BASH_VERSION-}${ZSH_VERSION-}" ]; then \typeset -f; fi
\printf "\000end"; } 2>/dev/null >|"$__dray_state" || :
fi' EXIT
eval "$1"
`

// sessionArgv returns the argv of a command in a session. exec runs its argv as one simple command
// of the shell, so that cd and export work; shell runs the command line.
func sessionArgv(shell, prelude string, argv []string, command string) []string {
	if argv != nil {
		return append([]string{shell, "-c", sessionScript + `shift; "$@"`, shell, prelude}, argv...)
	}
	script := sessionScript + `__dray_command=$2; set --; eval "$__dray_command"`
	return []string{shell, "-c", script, shell, prelude, command}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// restore returns the variables of the process and the text that restores the state. The variables
// of the call take precedence.
func (s *shellState) restore(shell string, callEnv map[string]string) (map[string]string, string) {
	env := maps.Clone(callEnv)
	if env == nil {
		env = map[string]string{}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.unset)) {
		if _, ok := callEnv[name]; !ok {
			fmt.Fprintf(&b, "unset -v %s\n", name)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(s.set)) {
		switch _, ok := callEnv[name]; {
		case ok:
		case identifier.MatchString(name):
			from := fmt.Sprintf("%s%d", variablePrefix, i)
			env[from] = s.set[name]
			if name == "UID" || name == "EUID" { // some shells refuse to assign even the same value
				fmt.Fprintf(&b, "[ \"${%s-}\" = \"$%s\" ] && export %s || ", name, from, name)
			}
			fmt.Fprintf(&b, "export %s=\"$%s\"; unset -v %s\n", name, from, from)
		default: // such as a function that bash exported
			env[name] = s.set[name]
		}
	}
	if s.cwd != "" {
		env["PWD"] = s.cwd // with the symlinks by which the shell came there
	}
	return env, b.String() + s.functions[shell]
}

var errNoState = errors.New("its shell did not end by itself, or was replaced")

// next returns the state after a command, of what its shell has saved. It fails if the state is
// incomplete, or too large to be restored. refused are variables that must not be kept.
func (s *shellState) next(saved []byte, shell string, callEnv map[string]string,
	refuses func(string) bool,
) (state *shellState, refused []string, err error) {
	cwd, first, last, functions, ok := parseState(saved)
	if !ok {
		return nil, nil, errNoState
	}
	if !path.IsAbs(cwd) || len(cwd) > maxSessionPath ||
		slices.Contains(strings.Split(cwd, "/"), "..") {
		return nil, nil, errors.New("its shell has no valid working directory")
	}
	n := &shellState{
		cwd: cwd, set: map[string]string{}, unset: map[string]bool{},
		functions: maps.Clone(s.functions),
	}
	if n.functions == nil {
		n.functions = map[string]string{}
	}
	delete(n.functions, shell)
	if functions != "" {
		n.functions[shell] = functions
	}
	for name, value := range last {
		before, had := first[name]
		_, ofCall := callEnv[name]
		changed := !had || before != value
		switch {
		case !changed && ofCall: // its value is that of the call only
			n.keep(s, name)
		case !changed:
		case refuses(name):
			refused = append(refused, name)
		case len(name)+len(value) > maxVariable:
			return nil, nil, fmt.Errorf("the variable %.64q is larger than %d KiB", name,
				maxVariable>>10)
		default:
			n.set[name] = value
		}
	}
	for name := range first {
		if _, ok := last[name]; ok || !identifier.MatchString(name) {
			continue
		}
		if refuses(name) {
			refused = append(refused, name)
		} else {
			n.unset[name] = true
		}
	}
	_, prelude := n.restore("", nil) // shell is never empty
	size := len(prelude)
	for other, text := range n.functions { // a shell has many spellings, each with its functions
		size += len(other) + len(text)
	}
	if size > maxPrelude {
		return nil, nil, fmt.Errorf("its variables and functions are larger than %d KiB",
			maxPrelude>>10)
	}
	slices.Sort(refused)
	return n, refused, nil
}

// keep copies a variable of the earlier state.
func (s *shellState) keep(from *shellState, name string) {
	if value, ok := from.set[name]; ok {
		s.set[name] = value
	}
	if from.unset[name] {
		s.unset[name] = true
	}
}

// parseState splits what sessionScript wrote.
func parseState(saved []byte) (cwd string, first, last map[string]string, functions string,
	ok bool,
) {
	body, complete := bytes.CutSuffix(saved, []byte("\x00end"))
	parts := strings.Split(string(body), "\x00")
	if !complete || len(parts) < 4 {
		return "", nil, nil, "", false
	}
	rest := parts[1:]
	if first, rest, ok = cutEnviron(rest); !ok {
		return "", nil, nil, "", false
	}
	if last, rest, ok = cutEnviron(rest); !ok || len(rest) != 1 {
		return "", nil, nil, "", false
	}
	return parts[0], first, last, rest[0], true
}

// ownVariables are those that each shell sets anew. bash refuses assignments to the last three.
var ownVariables = []string{"PWD", "_", "SHLVL", "SHELLOPTS", "BASHOPTS", "PPID"}

// cutEnviron returns the variables up to an empty part, without those that each shell and each call
// sets anew.
func cutEnviron(parts []string) (vars map[string]string, rest []string, ok bool) {
	end := slices.Index(parts, "")
	if end < 0 {
		return nil, nil, false
	}
	vars = map[string]string{}
	for _, kv := range parts[:end] {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && !slices.Contains(ownVariables, name) &&
			!strings.HasPrefix(name, "DRAY_") {
			vars[name] = value
		}
	}
	return vars, parts[end+1:], true
}

// sessionCall is a command in a session.
type sessionCall struct {
	sessionInput

	shell   string
	argv    []string // of exec; nil for shell
	command string
}

// runInSession runs a command in its session: after those before it, in the session's working
// directory and with its variables.
func (r *Registry) runInSession(ctx context.Context, call dray.Call, in sessionCall,
	sink dray.Sink,
) (dray.Result, error) {
	s, ok := ctx.Value(heldSession{}).(*shellSession)
	if !ok {
		return dray.Result{}, dray.Errorf(dray.CodeUnsupported, "this call cannot use a session").
			WithHint("omit session")
	}
	caps := call.Environment.Capabilities()
	container := ""
	if c := caps.Container; c != nil {
		if container = c.ID; c.Transport == "engine" {
			return dray.Result{}, dray.Errorf(dray.CodeUnsupported,
				"sessions need dray's agent, which does not run in container %s", c.Name).
				WithHint("omit session, or set agent.transport to auto")
		}
	}
	s.enterContainer(container)
	if err := checkSession(call, s.state.public(in.Session)); err != nil {
		return dray.Result{}, err
	}
	if s.state.cwd != "" && call.Invocation.StartsInSessionCwd() {
		call.WorkDir = s.state.cwd
		if a := call.Approved; a != nil { // in a container what was approved is the path
			call.RealDir = cmp.Or(a.Directory, s.state.cwd)
		}
	}
	callEnv := call.Invocation.Env
	env, prelude := s.state.restore(in.shell, callEnv)
	call.Invocation.Env = env
	outcome, err := r.start(ctx, call, sessionArgv(in.shell, prelude, in.argv, in.command),
		call.Stdin, sink)
	defer outcome.Release()
	s.started = outcome.Result.Metadata.Kill != nil
	s.ended = in.End && s.started
	report := &dray.SessionReport{Name: in.Session, New: s.isNew, Lost: s.lost, Ended: s.ended}
	if s.started {
		saved := outcome.SessionState
		if outcome.Result.Reason != dray.ReasonExited {
			saved = nil // some shells save it when they are ended, others do not
		}
		s.update(report, saved, in.shell, callEnv, caps.RefusesVariable)
	}
	report.Cwd = cmp.Or(s.state.cwd, call.WorkDir)
	return withSession(outcome.Result, report), sessionError(err, in.Session, call.WorkDir)
}

// public returns the state for approvals.
func (s *shellState) public(name string) dray.SessionState {
	return dray.SessionState{
		Name: name, Cwd: s.cwd, Set: s.set, Unset: slices.Sorted(maps.Keys(s.unset)),
		Functions: s.functions,
	}
}

// checkSession refuses a call whose approval is of another state of its session (SE-04).
func checkSession(call dray.Call, state dray.SessionState) error {
	if call.Approved == nil || call.Approved.SessionDigest == state.Digest() {
		return nil
	}
	return dray.Errorf(dray.CodeApprovalRequired,
		"the session %s changed after the approval of this call; nothing ran", state.Name).
		WithHint("repeat the call, so that a human sees the present state of the session")
}

// update sets the state of the session to the one that a command has saved, and adds what was lost
// to the report. If that state cannot be used, the session keeps the one from before the command.
func (s *shellSession) update(report *dray.SessionReport, saved []byte, shell string,
	callEnv map[string]string, refuses func(string) bool,
) {
	if refuses == nil {
		refuses = func(string) bool { return false }
	}
	next, refused, err := s.state.next(saved, shell, callEnv, refuses)
	var losses []string
	if report.Lost != "" {
		losses = append(losses, report.Lost)
	}
	switch {
	case err != nil:
		losses = append(losses, "the working directory and variables of this command were not saved: "+
			err.Error()+"; the next command starts with those before it")
	case len(refused) > 0:
		losses = append(losses, "these variables were not saved, because no call may set them on the "+
			"host: "+listRefused(refused))
	}
	if err == nil {
		s.state = *next
	}
	report.Lost = strings.Join(losses, "; ")
}

// listRefused returns the names of variables for a report. The command chose them, so one that is
// long or could look like something else is quoted.
func listRefused(names []string) string {
	var shown []string
	for _, name := range names[:min(len(names), maxRefusedNames)] {
		if quoted := fmt.Sprintf("%.64q", name); quoted != `"`+name+`"` {
			name = quoted
		}
		shown = append(shown, name)
	}
	if more := len(names) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// withSession adds the report of a session to a result. What was lost is a warning too.
func withSession(res dray.Result, report *dray.SessionReport) dray.Result {
	res.Metadata.Session = report
	if report.Lost != "" {
		res.Metadata.Warnings = append(slices.Clip(res.Metadata.Warnings),
			fmt.Sprintf("session %s: %s", report.Name, report.Lost))
	}
	return res
}

// sessionError adds a hint to the error of a command that cannot start in the session's working
// directory. dray chooses no other one: a command with relative paths would do something else
// there.
func sessionError(err error, name, dir string) error {
	if code := dray.CodeOf(err); code != dray.CodeBadCwd && code != dray.CodeDenied {
		return err
	}
	return dray.AsError(err).WithHint("the session %s is in %q: set cwd to a directory that calls "+
		"may use; the session continues there", name, dir)
}
