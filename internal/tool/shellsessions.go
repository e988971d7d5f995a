package tool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
)

const (
	// maxShellSessions bounds the sessions of a principal, maxAllShellSessions those of all.
	maxShellSessions    = 256
	maxAllShellSessions = 1024
	// shellSessionIdle is how long a session without a call is kept.
	shellSessionIdle = 4 * time.Hour
	// maxShellQueue bounds the calls that wait for one session.
	maxShellQueue = 64
)

// shellSessionKey identifies a session. Workspace is empty for calls without one; Container is then
// the container as the route names it.
type shellSessionKey struct {
	Principal   string `json:"principal"`
	Environment string `json:"environment"`
	Workspace   string `json:"workspace,omitempty"`
	Container   string `json:"container,omitempty"`
	Name        string `json:"name"`
}

// shellSession is a session. The call that has received from turn owns the fields up to ended;
// ShellSessions.mu guards the rest.
type shellSession struct {
	key       shellSessionKey
	turn      chan struct{} // holds a token while no call owns the session
	state     shellState
	container string // id of the container that the state belongs to
	isNew     bool
	lost      string // for the next report
	// started and ended report whether the command of the call started, and ends the session.
	started, ended bool

	shown    dray.SessionState // state, as it was when no call owned the session
	calls    int               // that own it or wait
	lastUsed time.Time
}

// ShellSessions has the sessions of the tools shell and exec (SS-01). A session has no process:
// each command is a process of its own, which starts with the working directory and variables that
// the one before has left. It is safe for concurrent use.
type ShellSessions struct {
	file string // empty: the loss of sessions at the end of the daemon is not reported
	now  func() time.Time

	mu       sync.Mutex
	sessions map[shellSessionKey]*shellSession
	// gone has the sessions that ended without a request of their caller, with the reason.
	gone map[shellSessionKey]string
}

// OpenShellSessions returns ShellSessions without sessions. The file has the names of sessions, so
// that their loss is reported after a restart of the daemon. It contains no variables.
func OpenShellSessions(file string) (*ShellSessions, error) {
	s := &ShellSessions{
		file: file, now: time.Now, sessions: map[shellSessionKey]*shellSession{},
		gone: map[shellSessionKey]string{},
	}
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the list of shell sessions: %w", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var key shellSessionKey
		if json.Unmarshal(lines.Bytes(), &key) == nil && key.Name != "" {
			s.remember(key, "its state was lost, because the daemon restarted")
		}
	}
	return s, nil // a damaged line only leaves a loss unexplained
}

// remember stores why a session has ended, for the next call that names it. mu must be held.
func (s *ShellSessions) remember(key shellSessionKey, why string) {
	if len(s.gone) >= maxAllShellSessions {
		for old := range s.gone {
			delete(s.gone, old)
			break
		}
	}
	s.gone[key] = why
}

// heldSession is the key of the session that a call holds in its context.
type heldSession struct{}

// Executor returns the layer that makes the calls of one session run one after the other. A call
// waits for its session before it has a slot, so that it keeps nothing from other calls meanwhile.
// The wait does not count towards its timeout.
func (s *ShellSessions) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		key, ok := shellKeyOf(call)
		if !ok {
			return next.Execute(ctx, call, sink)
		}
		sess, err := s.acquire(ctx, key, sink)
		if err != nil {
			return dray.Result{}, err
		}
		defer s.release(sess)
		return next.Execute(context.WithValue(ctx, heldSession{}, sess), call, sink)
	})
}

// shellKeyOf returns the session that a call of shell or exec names. ok is false for other calls.
func shellKeyOf(call dray.Call) (key shellSessionKey, ok bool) {
	if name := call.Tool.Name; name != "shell" && name != "exec" {
		return key, false
	}
	inv, route := call.Invocation, call.Route
	key = shellSessionKey{
		Principal: inv.Principal, Environment: string(route.Environment),
		Workspace: cmp.Or(route.Workspace, inv.Workspace), Name: sessionOf(inv.Input),
	}
	if key.Workspace == "" {
		key.Container = route.Container
	}
	return key, key.Name != ""
}

// acquire waits until no other call uses a session, and returns it. It begins a session that does
// not exist. It fails with busy if there are too many sessions or too many calls wait, and with the
// cause of ctx.
func (s *ShellSessions) acquire(ctx context.Context, key shellSessionKey, sink dray.Sink,
) (*shellSession, error) {
	sess, err := s.enter(key)
	if err != nil {
		return nil, err
	}
	select {
	case <-sess.turn:
		return sess, nil
	default:
	}
	defer executor.PauseDeadline(ctx)()
	if q, ok := sink.(interface{ Queued(waiting bool) }); ok {
		q.Queued(true)
		defer q.Queued(false)
	}
	select {
	case <-sess.turn:
		return sess, nil
	case <-ctx.Done():
		s.leave(sess, false)
		return nil, context.Cause(ctx)
	}
}

// enterContainer begins the session anew if its state is of another container. The id is empty on
// the host.
func (s *shellSession) enterContainer(id string) {
	if s.container == id {
		return
	}
	if !s.isNew {
		s.isNew, s.state = true, shellState{}
		s.lost = "its state was lost, because the container was created again"
	}
	s.container = id
}

// State returns the state of the session that a call names. A session that does not exist yet has
// the state of a new one. While a call owns the session it is the state before that call. ok is
// false for a call without a session.
func (s *ShellSessions) State(call dray.Call) (state dray.SessionState, ok bool) {
	key, ok := shellKeyOf(call)
	if !ok {
		return state, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.sessions[key]; sess != nil && sess.shown.Name != "" {
		return sess.shown, true
	}
	return dray.SessionState{Name: key.Name}, true
}

// enter returns a session for a call that will wait for it.
func (s *ShellSessions) enter(key shellSessionKey) (*shellSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	sess := s.sessions[key]
	if sess == nil {
		if err := s.checkCount(key.Principal); err != nil {
			return nil, err
		}
		sess = &shellSession{key: key, turn: make(chan struct{}, 1), isNew: true, lost: s.gone[key]}
		sess.turn <- struct{}{}
		s.sessions[key] = sess
		if err := s.save(); err != nil {
			delete(s.sessions, key)
			return nil, dray.Errorf(dray.CodeDiskFull, "record the session %s: %w", key.Name, err).
				WithHint("free space in the state directory, or omit session")
		}
	}
	if sess.calls > maxShellQueue {
		return nil, dray.Errorf(dray.CodeBusy, "%d calls wait for the session %s", maxShellQueue,
			key.Name).WithHint("wait for them, or use another session for work at the same time")
	}
	sess.calls++
	return sess, nil
}

// expire ends the sessions that were idle for too long. mu must be held.
func (s *ShellSessions) expire() {
	for key, sess := range s.sessions {
		if sess.calls == 0 && s.now().Sub(sess.lastUsed) > shellSessionIdle {
			delete(s.sessions, key)
			s.remember(key, fmt.Sprintf("its state was lost, because it was idle for more than %s",
				shellSessionIdle))
		}
	}
}

func (s *ShellSessions) checkCount(principal string) error {
	own := 0
	for key := range s.sessions {
		if key.Principal == principal {
			own++
		}
	}
	if own < maxShellSessions && len(s.sessions) < maxAllShellSessions {
		return nil
	}
	return dray.Errorf(dray.CodeBusy, "there are %d sessions of shells, %d of them of this principal",
		len(s.sessions), own).WithHint("end sessions with end: true; idle ones end after %s",
		shellSessionIdle)
}

// release lets the next call use the session. The report of a call that started has said what was
// lost. A session ends if its call ended it, or if its first call did not start.
func (s *ShellSessions) release(sess *shellSession) {
	switch {
	case sess.ended:
		sess.state, sess.isNew = shellState{}, true
	case sess.started:
		sess.isNew = false
	}
	s.mu.Lock()
	if sess.started {
		sess.lost = ""
		delete(s.gone, sess.key)
	}
	sess.shown = sess.state.public(sess.key.Name)
	s.mu.Unlock()
	unused := sess.isNew
	sess.started, sess.ended = false, false
	sess.turn <- struct{}{}
	s.leave(sess, unused)
}

// leave ends the use or the wait of a call. It removes an unused session that no other call uses.
func (s *ShellSessions) leave(sess *shellSession, unused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess.calls--
	sess.lastUsed = s.now()
	if sess.calls == 0 && unused {
		delete(s.sessions, sess.key)
		if sess.lost != "" {
			s.remember(sess.key, sess.lost) // no call has reported it
		}
		_ = s.save() // the file then names a session too many, whose loss is reported
	}
}

// save writes the keys of the sessions that exist or whose loss was not reported. mu must be held.
func (s *ShellSessions) save() error {
	if s.file == "" {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for key := range s.sessions {
		_ = enc.Encode(key) // texts always have a JSON form
	}
	for key := range s.gone {
		if s.sessions[key] == nil {
			_ = enc.Encode(key)
		}
	}
	return helper.ReplaceFile(s.file, b.Bytes())
}
