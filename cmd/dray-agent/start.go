package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// startTimeout bounds a start without the probe, which has a timeout of its own.
const startTimeout = 20 * time.Second

// start resolves a request against the container's files as they are now, and runs it.
func (a *agent) start(s *wire.Stream, req wire.Start) (*process.Process, []string, error) {
	user, err := a.users.lookup(req.User, req.Groups)
	if err != nil {
		return nil, nil, err
	}
	env, warnings := a.environment(s, req, user)
	if req.Terminal != nil && !slices.ContainsFunc(env,
		func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
		env = append(env, "TERM=xterm") // as an engine does for an exec with a terminal
	}
	spec := process.Spec{
		Argv: req.Argv, Env: env, Dir: req.Dir, Grace: req.Grace, Keep: req.KeepLeftovers,
		Terminal: req.Terminal,
	}
	if len(req.Helper) > 0 {
		spec.Argv = append([]string{"/proc/self/exe"}, req.Helper...)
	}
	if spec.Dir == "" {
		spec.Dir = user.home
	}
	if spec.User, err = a.credential(user); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.OnEnd(cancel) // nobody waits for the start of a cancelled call
	defer s.OnEnd(nil)
	proc, err := a.launch(ctx, spec, req, s)
	return proc, warnings, err
}

// launch starts a process with the streams that the daemon passed, else with pipes of its own.
func (a *agent) launch(ctx context.Context, spec process.Spec, req wire.Start, s *wire.Stream,
) (*process.Process, error) {
	if !req.PassedFDs {
		return a.pool.Start(ctx, spec)
	}
	files := s.Files()
	if len(files) != passedFDs {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, dray.Errorf(dray.CodeAgentLost, "the daemon passed %d file descriptors, want %d",
			len(files), passedFDs)
	}
	return a.pool.StartWith(ctx, spec, process.ChildFiles{
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
	})
}

// passedFDs is the number of fds that come with wire.Start.PassedFDs.
const passedFDs = 3

// credential returns the credentials of a user; nil if the agent cannot change its own and has them
// already.
func (a *agent) credential(u user) (*process.Credential, error) {
	if a.self.switchUser {
		return &process.Credential{UID: u.uid, GID: u.gid, Groups: u.groups}, nil
	}
	if int(u.uid) == a.self.uid {
		return nil, nil
	}
	return nil, dray.Errorf(dray.CodeBadUser, "this agent runs as uid %d and cannot change to uid %d",
		a.self.uid, u.uid)
}

func handleRequest(req wire.Request, proc *process.Process) {
	if req.Signal != 0 {
		_ = proc.Signal(syscall.Signal(req.Signal)) // the process may have ended
	}
	if req.Resize != nil {
		_ = proc.Resize(*req.Resize) // it may have no terminal
	}
	if req.Stop != nil {
		proc.Stop(req.Stop.Grace)
	}
}

// failedMessage gives an error its code here, where the failed step is known.
func failedMessage(err error, dir string) *wire.Failed {
	e := dray.AsError(process.WrapStartError(err, dir))
	return &wire.Failed{Code: e.Code, Message: e.Message}
}

// environment builds the environment of a process. From low to high precedence: what the engine
// gives an exec, the result of the shell probe, the call's variables, the configuration's remoteEnv
// (EX-07).
func (a *agent) environment(s *wire.Stream, req wire.Start, u user) (env, warnings []string) {
	vars := newEnvList(req.Env)
	vars.setDefault("HOME", u.home)
	if req.Probe.Kind != "" && req.Probe.Kind != "none" {
		probed, err := a.probe(s, req.Probe, u, vars.list())
		if err != nil {
			warnings = append(warnings, "reading the environment of the user's shell failed: "+err.Error())
		}
		for _, kv := range probed {
			vars.set(kv)
		}
	}
	for _, kv := range slices.Concat(req.CallEnv, req.RemoteEnv) {
		vars.set(kv)
	}
	return vars.list(), warnings
}

// errCancelled is returned for a call that the daemon has cancelled.
var errCancelled = errors.New("the call was cancelled")

// envList is an environment in which each name occurs once, in the order of its first occurrence.
type envList struct {
	vars  []string // NAME=VALUE
	index map[string]int
}

func newEnvList(env []string) *envList {
	v := &envList{vars: make([]string, 0, 2*len(env)), index: make(map[string]int, 2*len(env))}
	for _, kv := range env {
		v.set(kv)
	}
	return v
}

func (v *envList) set(kv string) {
	name, _, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return
	}
	if i, known := v.index[name]; known {
		v.vars[i] = kv
		return
	}
	v.index[name] = len(v.vars)
	v.vars = append(v.vars, kv)
}

func (v *envList) setDefault(name, value string) {
	if _, known := v.index[name]; !known {
		v.set(name + "=" + value)
	}
}

// list returns a copy of the variables.
func (v *envList) list() []string { return slices.Clone(v.vars) }

// printEnviron writes the variables of this process as /proc/self/environ has them, for images
// without cat.
func printEnviron(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(os.Environ(), "\x00")+"\x00")
	return err
}
