package python

import (
	"context"
	"path"

	"github.com/dray-dev/dray"
)

// maxListed bounds the packages that a reply of operation prepare lists.
const maxListed = 1000

// Prepared is what operation prepare has chosen for a session. It outlives the workers of the
// session and the daemon.
type Prepared struct {
	// Executable is the interpreter of later workers. Empty means the python3 of the environment.
	Executable string `json:"executable,omitempty"`
	// Manifest is nil as long as no request changed it.
	Manifest *Manifest `json:"manifest,omitempty"`
}

func (p Prepared) manifest() Manifest {
	if p.Manifest == nil {
		return DefaultManifest()
	}
	return *p.Manifest
}

func (p Prepared) isNew() bool { return p.Executable == "" && p.Manifest == nil }

// explain replaces the hint of the error of a worker that did not start, if operation prepare chose
// its interpreter.
func (p Prepared) explain(err error) error {
	if p.Executable == "" || dray.CodeOf(err) != dray.CodeHelperMissing {
		return err
	}
	return dray.AsError(err).WithHint("operation prepare chose this interpreter: run it again " +
		"(`dray python prepare`) to make its environment anew, or name another interpreter")
}

// PrepareReply is the result of operation prepare.
type PrepareReply struct {
	// Changed says that the manifest or the interpreter has changed. Restarted says that a worker in
	// which code had run was ended, so its globals are lost.
	Changed   bool `json:"changed"`
	Restarted bool `json:"restarted"`
	// Python is the interpreter of the session.
	Python PreparedPython `json:"python"`
	// Packages and PythonVersion are those of the manifest.
	Packages      []string `json:"packages"`
	PythonVersion string   `json:"python_version,omitempty"`
	// Installed has the packages, as "name==version", that the interpreter has and the previous one
	// did not have in this version. Removed has those that only the previous one had, in any version.
	// Each has at most 1000.
	Installed []string `json:"installed"`
	Removed   []string `json:"removed"`
}

// PreparedPython describes an interpreter.
type PreparedPython struct {
	Executable string `json:"executable"`
	Version    string `json:"version"`
	Prefix     string `json:"prefix"` // sys.prefix
}

// Prepare changes the packages or the interpreter of a session. It waits until no call runs in the
// session. If the interpreter changes, the worker is ended and the next call starts another; else
// the globals stay. Prepare runs neither code of the session nor of packages, unless the policy
// allows source builds. If it fails, or ctx ends, nothing has changed (PY-14, PY-15, PY-26).
//
// It fails with the codes of Start; with unsupported if the runtime cannot; with conflict if
// Restart is RestartNo and globals would be lost; with helper_missing without uv; with
// invalid_input if the packages cannot be installed together, or the interpreter is not Python;
// with transfer_failed if the index cannot be reached or uv was killed; with disk_full; and with
// denied if the user of the environment has no writable directory for them.
func (s *Sessions) Prepare(ctx context.Context, key Key, env dray.Environment, spec CallSpec,
	req PrepareRequest, policy PreparePolicy, sink dray.Sink,
) (PrepareReply, error) {
	if can, ok := s.Runtimes()[key.Runtime]; ok && !can.Prepare {
		return PrepareReply{}, dray.Errorf(dray.CodeUnsupported,
			"the Python runtime %s has a fixed set of packages", key.Runtime).
			WithHint("use the runtime %s for other packages", RuntimeContainer)
	}
	var reply PrepareReply
	err := s.Exclusive(ctx, key, env, spec, func(ctx context.Context, x *Exclusive) (err error) {
		p := prepareCall{
			Exclusive: x, req: req,
			builder: builder{env: env, policy: policy, sink: sink},
		}
		reply, err = p.run(ctx)
		return err
	})
	return reply, err
}

// prepareCall is one operation prepare. It has the session exclusively.
type prepareCall struct {
	*Exclusive
	builder builder
	req     PrepareRequest

	before  Prepared
	status  Status
	current interpreter // of the worker, or of the next worker; zero if it does not answer
}

func (p *prepareCall) run(ctx context.Context) (PrepareReply, error) {
	p.status, p.before = p.Status(), p.prepared()
	if err := p.describeCurrent(ctx); err != nil {
		return PrepareReply{}, err
	}
	next := p.before
	if p.req.isExplicit() {
		target, err := p.explicit(ctx)
		if err != nil {
			return PrepareReply{}, err
		}
		next.Executable = target.Executable
		return p.commit(ctx, next, target)
	}
	manifest := p.before.manifest().apply(p.req)
	target, err := p.realise(ctx, manifest)
	if err != nil {
		return PrepareReply{}, err
	}
	if !manifest.Equal(p.before.manifest()) {
		next.Manifest = &manifest
	}
	if next.Executable != "" || target.Executable != p.current.Executable {
		next.Executable = target.Executable
	}
	return p.commit(ctx, next, target)
}

// describeCurrent probes the interpreter of the worker, or of the next worker. It fails only with
// the cause of ctx: an interpreter that does not answer, for example because it was removed, counts
// as one without packages.
func (p *prepareCall) describeCurrent(ctx context.Context) error {
	executable := p.before.Executable
	if executable == "" {
		executable = p.spec.Executable
	}
	if hello := p.status.Hello; hello != nil && isCleanPath(hello.Executable) {
		executable = hello.Executable
	}
	found, err := p.builder.probe(ctx, executable)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		p.current = found
	}
	return nil
}

// explicit returns the interpreter that the request names.
func (p *prepareCall) explicit(ctx context.Context) (interpreter, error) {
	executable := p.req.Executable
	if p.req.Venv != "" {
		executable = path.Join(p.req.Venv, "bin", "python")
	}
	found, err := p.builder.probe(ctx, executable)
	if err != nil {
		return interpreter{}, err
	}
	if p.req.Venv != "" && found.Prefix != p.req.Venv {
		return interpreter{}, refuse("/python/venv", "%q is not a virtual environment", p.req.Venv).
			WithHint("name a directory with a pyvenv.cfg, or use python.executable")
	}
	return found, p.checkRestart(found.Executable)
}

// realise returns an interpreter with the packages of the manifest. The action add keeps the
// current one if it has them. Remove and set need a virtual environment that has them and no
// others.
func (p *prepareCall) realise(ctx context.Context, m Manifest) (interpreter, error) {
	satisfied := p.current.Executable != "" && p.current.hasVersion(m.PythonVersion) &&
		m.satisfiedBy(p.current.Installed)
	if p.req.Action == ActionAdd && satisfied {
		return p.current, p.checkRestart(p.current.Executable)
	}
	found, err := p.builder.find(ctx, m)
	if err != nil {
		return interpreter{}, err
	}
	if found == nil { // a new one has a new path
		if err := p.checkRestart(""); err != nil {
			return interpreter{}, err
		}
		made, err := p.builder.build(ctx, m)
		if err != nil {
			return interpreter{}, err
		}
		found = &made
	}
	if err := p.checkRestart(found.Executable); err != nil {
		return interpreter{}, err
	}
	probed, err := p.builder.probe(ctx, found.Executable) // whether it starts, with its own prefix
	if err == nil && probed.Prefix != found.Prefix {
		err = notPythonError("its prefix is " + probed.Prefix)
	}
	return probed, err
}

// checkRestart fails with conflict if the request forbids a restart that the interpreter needs, and
// globals would be lost.
func (p *prepareCall) checkRestart(executable string) error {
	if p.req.Restart != RestartNo || !p.needsRestart(executable) || !p.status.HasState {
		return nil
	}
	return dray.Errorf(dray.CodeConflict,
		"the Python session %q would lose its variables: the packages need another interpreter",
		p.status.Name).
		WithHint("use restart if_needed and run again what made the variables, or use a new session")
}

// needsRestart reports whether the worker, if there is one, runs another interpreter.
func (p *prepareCall) needsRestart(executable string) bool {
	return p.status.Hello != nil && executable != p.current.Executable
}

// commit makes target the interpreter of the session.
func (p *prepareCall) commit(ctx context.Context, next Prepared, target interpreter) (
	PrepareReply, error,
) {
	restart := p.req.Restart == RestartYes || p.needsRestart(target.Executable)
	restarted, err := p.adopt(ctx, next, restart)
	if err != nil {
		return PrepareReply{}, err
	}
	m := next.manifest()
	return PrepareReply{
		Changed:   !m.Equal(p.before.manifest()) || target.Executable != p.current.Executable,
		Restarted: restarted,
		Python:    PreparedPython{target.Executable, target.Version, target.Prefix},
		Packages:  m.Names(), PythonVersion: m.PythonVersion,
		Installed: shorten(target.newerThan(p.current)), Removed: shorten(p.current.goneIn(target)),
	}, nil
}

func shorten(names []string) []string { return names[:min(len(names), maxListed)] }

// prepared returns what was chosen for the session.
func (x *Exclusive) prepared() Prepared {
	x.sessions.mu.Lock()
	defer x.sessions.mu.Unlock()
	return x.hold.session.prepared
}

// adopt sets what is chosen for the session, and ends its worker if restart is set. It reports
// whether globals were discarded, which no later reply reports again. If ctx has ended it fails
// with its cause and changes nothing.
func (x *Exclusive) adopt(ctx context.Context, next Prepared, restart bool) (discarded bool,
	err error,
) {
	s, sess := x.sessions, x.hold.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	sess.prepared = next
	s.journal.recordPrepared(sess.key, next)
	if restart {
		wasLost := sess.lost
		discarded = sess.hasState
		s.kill(sess)
		if sess.lost = wasLost; wasLost == 0 {
			s.journal.record(sess.key, sess.generation, false)
		}
	}
	return discarded, nil
}
