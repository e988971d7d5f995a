package approval

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/redact"
)

// maxShown bounds the text of stdin, and maxShownInput the input, that a human is shown, in bytes.
const (
	maxShown      = 4 << 10
	maxShownInput = 64 << 10
)

// Request is a call as a human sees it, without secrets.
type Request struct {
	Tool string `json:"tool"`
	// Input is the input in the caller's form, null if it has more than 64 KiB.
	Input      jsontext.Value `json:"input"`
	InputBytes int            `json:"input_bytes" doc:"The size of the input, of which more than 64 KiB are not shown."`
	// Argv and Variables are of a command tool: its program with the paths of the caller, and the
	// names of the variables that the tool itself sets.
	Argv        []string             `json:"argv,omitempty" doc:"What a command tool runs, with the paths of the caller."`
	Variables   []string             `json:"variables,omitempty" doc:"The names of the variables that a command tool sets."`
	Workspace   string               `json:"workspace,omitzero"`
	Container   string               `json:"container,omitzero"`
	Environment dray.EnvironmentKind `json:"environment" doc:"host or container"`
	Rule        string               `json:"rule" doc:"The routing rule that decided the environment."`
	Cwd         string               `json:"cwd,omitzero"`
	Directory   string               `json:"directory,omitzero" doc:"The working directory on the host without symlinks, if that is another path."`
	Env         map[string]string    `json:"env,omitempty" doc:"The variables that the call adds."`
	Context     dray.CallContext     `json:"context,omitzero" doc:"Its ids, which are variables of the process, without labels."`
	Stdin       *Stdin               `json:"stdin,omitzero"`
	// Session is the state of the session of exec or shell.
	Session   *Session       `json:"session,omitzero"`
	Timeout   float64        `json:"timeout_seconds,omitzero"`
	Leftovers dray.Leftovers `json:"leftovers,omitzero"`
	Sync      []string       `json:"sync,omitempty"`
	Reasons   []string       `json:"reasons" doc:"Why policy asks."`
	Policies  []string       `json:"policies,omitempty"`
}

// Stdin describes the stdin of a call.
type Stdin struct {
	// Open reports whether the caller writes it while the call runs: nothing is known about it then.
	Open   bool   `json:"open,omitzero" doc:"The caller writes it while the call runs: nothing is known about it."`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitzero"`
	Text   string `json:"text,omitzero" doc:"Its first 4 KiB, if they are text."`
}

// Session is the state in which a call of exec or shell starts.
type Session struct {
	dray.SessionState

	// Omitted reports whether its variables and functions are left out: they exceed 16 KiB.
	Omitted bool `json:"omitted,omitzero" doc:"Its variables and functions are too long to be shown."`
}

// Line is a property of a call for a human to read.
type Line struct{ Name, Text string }

// Lines returns all properties of the call that a human must know to decide. complete is false if
// one of them was too long to be stored in full.
func (r *Request) Lines() (lines []Line, complete bool) {
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, Line{name, text})
		}
	}
	complete = r.Input.Kind() == '{'
	add("tool", r.Tool)
	add("command", r.Command())
	if complete {
		add("input", string(r.Input))
	} else {
		add("input", fmt.Sprintf("%d bytes, which are not shown", r.InputBytes))
	}
	add("runs", r.Place()+" ("+r.Rule+")")
	add("workspace", r.Workspace)
	add("directory", r.Cwd)
	add("directory leads to", r.Directory)
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		add("variable", name+"="+r.Env[name])
	}
	add("tool sets", strings.Join(r.Variables, ", "))
	for _, v := range r.Context.Variables() {
		add("variable", v[0]+"="+v[1])
	}
	switch stdin := r.Stdin; {
	case stdin == nil:
	case stdin.Open:
		add("stdin", "sent while the call runs, so it is not known yet")
	default:
		add("stdin", fmt.Sprintf("%d bytes: %s", stdin.Bytes, stdin.Text))
		complete = complete && int64(len(stdin.Text)) == stdin.Bytes
	}
	if r.Session != nil {
		r.Session.lines(add)
		complete = complete && !r.Session.Omitted
	}
	if r.Timeout > 0 {
		add("timeout", fmt.Sprintf("%v s", r.Timeout))
	}
	for _, path := range r.Sync {
		add("fetches", path)
	}
	if r.Leftovers == dray.KeepLeftovers {
		add("leftovers", "processes may go on when the call has ended")
	}
	for _, why := range r.Reasons {
		add("why", why)
	}
	add("policies", strings.Join(r.Policies, ", "))
	return lines, complete
}

func (s *Session) lines(add func(name, text string)) {
	add("session", s.Name)
	add("session's cwd", s.Cwd)
	if s.Omitted {
		add("session's state", "its variables and functions are too long to be shown")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Set)) {
		add("session sets", name+"="+s.Set[name])
	}
	add("session unsets", strings.Join(s.Unset, ", "))
	for _, shell := range slices.Sorted(maps.Keys(s.Functions)) {
		add("session's functions", s.Functions[shell])
	}
}

// Place returns where the call runs.
func (r *Request) Place() string {
	switch {
	case r.Environment == dray.KindHost:
		return string(dray.KindHost)
	case r.Container != "":
		return r.Container
	default:
		return "container of " + r.Workspace
	}
}

// Command returns what exec, shell and command tools run, quoted for a shell, and "" for other
// tools.
func (r *Request) Command() string {
	argv, _, err := policy.Command(r.Tool, r.Input)
	if err != nil {
		return "" // the input is too large to be shown
	}
	if argv == nil {
		argv = r.Argv
	}
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = lexical.ShellWord(word)
	}
	return strings.Join(words, " ")
}

// identity has all properties that decide what a call runs. Its hash identifies the calls that an
// approval lets run. The id and the labels of the call are empty in it: they decide nothing.
type identity struct {
	Invocation dray.Invocation      `json:"invocation"`
	LocalEnv   map[string]string    `json:"local_env"`
	Kind       dray.EnvironmentKind `json:"kind"`
	Container  string               `json:"container"`
	Workspace  string               `json:"workspace"`
	Stdin      *Stdin               `json:"stdin"`
	Session    string               `json:"session"`    // digest of its state
	Directory  string               `json:"directory"`  // on the host, without symlinks
	Definition string               `json:"definition"` // of the tool, which a reload may change
}

// description is a call that policy asks about, as it is now.
type description struct {
	call    dray.Call
	stdin   *Stdin
	session *dray.SessionState // nil without one
	dir     directory
	hash    string // of its identity
	// approved is what of the call can change until it starts.
	approved dray.Approved
}

// describe returns the description of a call. stdin is that of the call, as [readStdin] returns it.
func describe(ctx context.Context, cfg Config, c dray.Call, stdin *Stdin) (description, error) {
	d := description{call: c, stdin: stdin}
	if state, ok := cfg.Session(c); ok {
		d.session, d.approved.SessionDigest = &state, state.Digest()
	}
	d.dir = directoryOf(ctx, c, d.session)
	d.approved.Directory = d.dir.real
	id := identity{
		Invocation: c.Invocation, LocalEnv: c.Invocation.LocalEnv, Kind: c.Route.Environment,
		Container: c.Route.Container, Workspace: c.Route.Workspace, Stdin: stdin,
		Definition: c.Tool.Definition, Session: d.approved.SessionDigest, Directory: d.dir.real,
	}
	id.Invocation.ID, id.Invocation.Context.Labels = "", nil
	var err error
	d.hash, err = hashOf(cfg.Key, id)
	return d, err
}

// request returns what a human sees of the call: a [Request] as JSON.
func (d *description) request(redactor *redact.Redactor, decision policy.Decision) ([]byte, error) {
	inv, route := redactor.Invocation(d.call.Invocation), redactor.Route(d.call.Route)
	shown := Request{
		Tool: inv.Tool, Input: jsontext.Value(inv.Input), InputBytes: len(inv.Input),
		Workspace: cmp.Or(inv.Workspace, route.Workspace),
		Container: route.Container, Environment: route.Environment, Rule: route.Rule, Cwd: inv.Cwd,
		Context: inv.Context,
		Env:     inv.Env, Timeout: inv.Timeout.Seconds(), Leftovers: inv.Leftovers, Sync: inv.Sync,
		Reasons: decision.Reasons, Policies: decision.Policies,
		Session: shownSession(d.session, redactor),
	}
	if len(inv.Input) > maxShownInput {
		shown.Input = nil
	} else if program := d.call.Tool.Program; program != nil {
		shown.Argv, shown.Variables = program(inv.Input)
	}
	shown.Context.Labels = nil
	if d.dir.ofSession {
		shown.Cwd = "" // the call starts in that of the session
	}
	if d.dir.real != d.dir.named {
		shown.Directory = redactor.Text(d.dir.real)
	}
	if d.stdin != nil {
		stdin := *d.stdin
		stdin.Text = redactor.Text(stdin.Text)
		shown.Stdin = &stdin
	}
	text, err := json.Marshal(shown, json.Deterministic(true))
	if err != nil {
		return nil, internalError("encode the call", err)
	}
	return text, nil
}

// directory is where a call starts.
type directory struct {
	named string // by the call or its session
	// real is the same on the host without symlinks, empty for a directory of a container.
	real      string
	ofSession bool
}

func directoryOf(ctx context.Context, c dray.Call, session *dray.SessionState) directory {
	d := directory{named: policy.Directory(c)}
	if session != nil && session.Cwd != "" && c.Invocation.StartsInSessionCwd() {
		d.named, d.ofSession = session.Cwd, true
	}
	ofContainer := d.ofSession || c.Invocation.Paths == dray.PathsOfContainer
	if c.Route.Environment == dray.KindHost || !ofContainer {
		d.real = policy.RealPath(ctx, d.named)
	}
	return d
}

// maxShownSession bounds the state of a session that a human is shown, in bytes.
const maxShownSession = 16 << 10

// shownSession returns the state of a session without secrets, nil for nil.
func shownSession(state *dray.SessionState, redactor *redact.Redactor) *Session {
	if state == nil {
		return nil
	}
	shown := &Session{SessionState: dray.SessionState{
		Name: state.Name, Cwd: redactor.Text(state.Cwd), Unset: state.Unset,
		Set: map[string]string{}, Functions: map[string]string{},
	}}
	size := 0
	for name, value := range state.Set {
		shown.Set[name] = redactor.Text(value)
		size += len(name) + len(value)
	}
	for shell, text := range state.Functions {
		shown.Functions[shell] = redactor.Text(text)
		size += len(text)
	}
	for _, name := range state.Unset {
		size += len(name)
	}
	if size > maxShownSession {
		shown.Set, shown.Functions, shown.Unset, shown.Omitted = nil, nil, nil, true
	}
	return shown
}

func hashOf(key []byte, id identity) (string, error) {
	text, err := json.Marshal(id, json.Deterministic(true), json.WithMarshalers(
		json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
			return enc.WriteToken(jsontext.Int(int64(d)))
		})))
	canonical := jsontext.Value(text)
	if err == nil {
		err = canonical.Format(jsontext.ReorderRawObjects(true))
	}
	if err != nil {
		return "", internalError("hash the call", err)
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("approval\x00"))
	h.Write(canonical)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readStdin describes a stdin. It reads one that can be seeked, and seeks to its start again.
func readStdin(r io.Reader) (*Stdin, error) {
	switch r := r.(type) {
	case nil:
		return nil, nil
	case io.ReadSeeker:
		h := sha256.New()
		head := &prefix{max: maxShown}
		n, err := io.Copy(io.MultiWriter(h, head), r)
		if err == nil {
			_, err = r.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, internalError("read stdin", err)
		}
		s := &Stdin{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}
		if utf8.Valid(head.text) {
			s.Text = string(head.text)
		}
		return s, nil
	default:
		return &Stdin{Open: true}, nil
	}
}

// prefix keeps the first bytes that are written to it.
type prefix struct {
	text []byte
	max  int
}

func (p *prefix) Write(b []byte) (int, error) {
	p.text = append(p.text, b[:min(len(b), p.max-len(p.text))]...)
	return len(b), nil
}

func internalError(what string, err error) error {
	return dray.Errorf(dray.CodeInternal, "%s for an approval: %w", what, err).
		WithHint("nothing ran; repeat the call")
}
