package main

import (
	"context"
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

// startTimeout bounds what lies between a request and the kernel's answer, the probe aside: it has
// its own.
const startTimeout = 20 * time.Second

// start resolves a request in this container, as it is now, and runs it.
func (a *agent) start(s *wire.Stream, req wire.Start) (*process.Process, []string, error) {
	user, err := containerUsers.lookup(req.User, req.Groups)
	if err != nil {
		return nil, nil, err
	}
	env, warnings := a.environment(s, req, user)
	if req.Terminal != nil && !slices.ContainsFunc(env,
		func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
		env = append(env, "TERM=xterm") // as an engine gives it to an exec with a terminal
	}
	spec := process.Spec{
		Argv: req.Argv, Env: env, Dir: req.Dir, Grace: req.Grace, Keep: req.KeepLeftovers, Terminal: req.Terminal,
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
	ctx, cancel := streamContext(s, startTimeout)
	defer cancel()
	proc, err := a.launch(ctx, spec, req, s)
	return proc, warnings, err
}

// launch starts a process with the streams that the daemon passed, or else with our own.
func (a *agent) launch(ctx context.Context, spec process.Spec, req wire.Start,
	s *wire.Stream,
) (*process.Process, error) {
	if !req.PassedFDs {
		return a.pool.Start(ctx, spec)
	}
	files := s.Files()
	if len(files) != passedFDs {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, dray.Errorf(dray.CodeAgentLost, "the daemon passed %d descriptors where %d belong",
			len(files), passedFDs)
	}
	return a.pool.StartWith(ctx, spec, process.ChildFiles{
		Stdin: files[0], Stdout: files[1],
		Stderr: files[2],
	})
}

// passedFDs is how many descriptors come with wire.Start.Ends.
const passedFDs = 3

// credential is nil where the agent is that user already and could not change it anyway.
func (a *agent) credential(u user) (*process.Credential, error) {
	if a.self.switchUser {
		return &process.Credential{UID: u.uid, GID: u.gid, Groups: u.groups}, nil
	}
	if int(u.uid) == a.self.uid {
		return nil, nil
	}
	return nil, dray.Errorf(dray.CodeBadUser, "this agent runs as uid %d and may not become uid %d",
		a.self.uid, u.uid)
}

// streamContext ends with the stream, so that nobody waits for the start of a call that was given
// up.
func streamContext(s *wire.Stream, bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	go func() {
		select {
		case <-s.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func handleRequest(req wire.Request, proc *process.Process) {
	if req.Signal != 0 {
		_ = proc.Signal(syscall.Signal(req.Signal)) // a process that is over takes none
	}
	if req.Resize != nil {
		_ = proc.Resize(*req.Resize) // one without a terminal has no size
	}
	if req.Stop != nil {
		proc.Stop(req.Stop.Grace)
	}
}

// failedMessage gives the error its code, here where it is still known which step failed.
func failedMessage(err error, dir string) *wire.Failed {
	e := dray.AsError(process.WrapStartError(err, dir))
	return &wire.Failed{Code: e.Code, Message: e.Message}
}

// environment builds a process's variables. From low to high: what the engine gives every exec,
// what the user's shell makes of it (without its PWD), the call's own, the configuration's
// remoteEnv.
func (a *agent) environment(s *wire.Stream, req wire.Start, u user) (env, warnings []string) {
	vars := newVariables(req.Env)
	vars.setDefault("HOME", u.home)
	if req.Probe.Kind != "" && req.Probe.Kind != "none" {
		probed, err := a.probe(s, req.Probe, u, vars.list())
		if err != nil {
			warnings = append(warnings,
				"the user's shell could not be asked for its environment: "+err.Error())
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

// envList is an environment in which each name stands once, in the order of first mention.
type envList struct {
	order []string
	value map[string]string
}

func newVariables(env []string) *envList {
	v := &envList{value: make(map[string]string, len(env))}
	for _, kv := range env {
		v.set(kv)
	}
	return v
}

func (v *envList) set(kv string) {
	name, value, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return
	}
	if _, known := v.value[name]; !known {
		v.order = append(v.order, name)
	}
	v.value[name] = value
}

func (v *envList) setDefault(name, value string) {
	if _, known := v.value[name]; !known {
		v.set(name + "=" + value)
	}
}

func (v *envList) list() []string {
	list := make([]string, len(v.order))
	for i, name := range v.order {
		list[i] = name + "=" + v.value[name]
	}
	return list
}

// printEnviron writes this process's variables as /proc/self/environ has them, for images without a
// cat.
func printEnviron(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(os.Environ(), "\x00")+"\x00")
	return err
}
