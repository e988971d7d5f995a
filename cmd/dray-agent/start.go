package main

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// startTimeout bounds what lies between a request and the kernel's answer, the probe aside: it has its own.
const startTimeout = 20 * time.Second

// start resolves a request in this container, as it is now, and runs it.
func (a *agent) start(s *wire.Stream, req wire.Start) (*process.Process, []string, error) {
	user, err := containerUsers.lookup(req.User, req.Groups)
	if err != nil {
		return nil, nil, err
	}
	env, warnings := a.environment(s, req, user)
	if req.Terminal != nil && !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
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
func (a *agent) launch(ctx context.Context, spec process.Spec, req wire.Start, s *wire.Stream) (*process.Process, error) {
	if !req.PassedFDs {
		return a.pool.Start(ctx, spec)
	}
	files := s.Files()
	if len(files) != passedFDs {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, dray.Errorf(dray.CodeAgentLost, "the daemon passed %d descriptors where %d belong", len(files), passedFDs)
	}
	return a.pool.StartWith(ctx, spec, process.ChildFiles{Stdin: files[0], Stdout: files[1], Stderr: files[2]})
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
	return nil, dray.Errorf(dray.CodeBadUser, "this agent runs as uid %d and may not become uid %d", a.self.uid, u.uid)
}

// streamContext ends with the stream, so that nobody waits for the start of a call that was given up.
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
