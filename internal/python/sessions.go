package python

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// Options are the parameters of [New].
type Options struct {
	// Runtimes start the workers. A session belongs to one of them.
	Runtimes []Runtime
	// Resident has the maximum number of workers of each runtime, at least 1. It counts workers that
	// start, run, are idle, or were killed and have not ended yet.
	Resident map[string]int
	// Idle is how long a worker is kept without a call. Zero is no limit.
	Idle time.Duration
	// Queue is the maximum number of calls of each runtime that wait for a session or a worker.
	// QueueWait bounds the wait of each.
	Queue     int
	QueueWait time.Duration
	// Memory is the budget of a worker in bytes. A worker whose peak exceeds RetireAbove bytes is
	// ended after the call. Zero is no limit.
	Memory, RetireAbove int64
	// Permissions are those of sessions whose first call asks for none, and the most that a call may
	// ask for. Runtimes without the capability ignore them.
	Permissions Permissions
	// StateFile lists the sessions with state, so that its loss is reported after a restart of the
	// daemon (PY-25), and what operation prepare chose. Its directory must exist. Empty means no file.
	StateFile string
	Log       *zap.Logger // required
}

// Key identifies a session (PY-17).
type Key struct {
	Principal string `json:"principal"`
	// Environment is an id that an environment keeps when the daemon restarts.
	Environment string `json:"environment"`
	Runtime     string `json:"runtime"`
	Name        string `json:"name"`
}

func compareKeys(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Environment, b.Environment),
		cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.Name, b.Name),
	)
}

// SessionState is what a session does (PY-07).
type SessionState string

// The states of a session. A cold session has no worker: none was started, or it was idle for too
// long, or another session needed its slot. The worker of a dead session has crashed or was killed
// during a call. The next call of a cold or dead session starts a worker.
const (
	Cold        SessionState = "cold"
	Starting    SessionState = "starting"
	Idle        SessionState = "idle"
	Busy        SessionState = "busy"
	Terminating SessionState = "terminating"
	Dead        SessionState = "dead"
)

// Status describes a session.
type Status struct {
	Key
	State SessionState `json:"state"`
	// Generation is the number of workers that the session has had.
	Generation uint32 `json:"generation"`
	// Hello is the hello of the worker, nil without a worker.
	Hello *Hello `json:"worker,omitempty"`
	// Executable is the interpreter that operation prepare chose; empty is the environment's.
	Executable  string       `json:"executable,omitempty"`
	Permissions *Permissions `json:"permissions,omitempty"`
	// HasState says that user code ran in the worker. StateLost says that the next reply will report
	// discarded_state.
	HasState  bool `json:"has_state"`
	StateLost bool `json:"state_lost"`
	// Waiting is the number of calls that wait for the session.
	Waiting  int       `json:"waiting"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Usage    Usage     `json:"usage"` // of the last call
}

// Sessions has the sessions of all principals. It is safe for concurrent use.
type Sessions struct {
	opts    Options
	pools   map[string]*pool
	journal *journal
	group   sync.WaitGroup // of all goroutines

	mu       sync.Mutex
	closed   bool
	sessions map[Key]*session
}

// session is the session of a key. Its fields are guarded by Sessions.mu.
type session struct {
	key         Key
	pool        *pool
	generation  uint32
	permissions *Permissions
	created     bool // permissions are fixed
	prepared    Prepared
	hasState    bool // user code ran in the worker
	// lastRun is the generation of the worker of the last run, or zero.
	lastRun uint32
	// lost is the generation of the last worker whose state was lost, if no reply of a later one has
	// reported that; else zero.
	lost      uint32
	died      bool // the last worker crashed, or ended during a call
	holder    *hold
	queue     []*hold // calls that wait for it, in order
	resident  *resident
	idleTimer *time.Timer // nil if none runs
	lastUsed  time.Time
	usage     Usage
}

// New returns Sessions without workers. It fails with invalid_request if a runtime may have no
// workers, and with invalid_input for a malformed host in the permissions.
func New(opts Options) (*Sessions, error) {
	if _, err := parseHosts(opts.Permissions.Network); err != nil {
		return nil, err
	}
	s := &Sessions{opts: opts, pools: map[string]*pool{}, sessions: map[Key]*session{}}
	for _, r := range opts.Runtimes {
		limit := opts.Resident[r.Name()]
		if limit < 1 {
			return nil, dray.Errorf(dray.CodeInvalidRequest,
				"the Python runtime %s may have %d workers", r.Name(), limit).
				WithHint("set %s to 1 or more", residentKey(r.Name()))
		}
		s.pools[r.Name()] = &pool{runtime: r, limit: limit, residents: map[*session]bool{}}
	}
	s.load()
	return s, nil
}

// load creates the sessions of the journal: those whose state was lost when the daemon ended, and
// those that were prepared.
func (s *Sessions) load() {
	var entries []journalEntry
	s.journal, entries = openJournal(s.opts.StateFile, s.opts.Log)
	for _, e := range entries {
		p := s.pools[e.Runtime]
		if p == nil {
			continue
		}
		sess := s.sessions[e.Key]
		if sess == nil {
			sess = &session{key: e.Key, pool: p}
			s.sessions[e.Key] = sess
		}
		if e.Prepared != nil {
			sess.prepared = *e.Prepared
		} else {
			sess.generation, sess.lost, sess.lastRun = e.Generation, e.Generation, e.Generation
		}
	}
}

// Runtimes returns the capabilities of the runtimes by name.
func (s *Sessions) Runtimes() map[string]Capabilities {
	all := map[string]Capabilities{}
	for name, p := range s.pools {
		all[name] = p.runtime.Capabilities()
	}
	return all
}

// Permissions returns those of sessions whose first call asks for none.
func (s *Sessions) Permissions() Permissions { return s.opts.Permissions }

// Close refuses new calls, fails waiting calls with shutting_down, ends all workers, and blocks
// until they have ended.
func (s *Sessions) Close() {
	s.mu.Lock()
	s.closed = true
	for _, sess := range s.sessions {
		s.closeSession(sess)
	}
	for _, p := range s.pools {
		for _, h := range p.queue {
			h.slotWait.fail(errShuttingDown())
		}
		p.waiting -= len(p.queue)
		p.queue = nil
	}
	s.mu.Unlock()
	s.group.Wait()
	s.journal.close()
}

func (s *Sessions) closeSession(sess *session) {
	sess.stopTimer()
	for _, h := range sess.queue {
		h.sessionWait.fail(errShuttingDown())
	}
	sess.pool.waiting -= len(sess.queue)
	sess.queue = nil
	s.abort(sess, errShuttingDown())
}

// List returns the sessions of a principal in some environments, sorted. An empty principal is all
// of them, and so are no environments.
func (s *Sessions) List(principal string, environments ...string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Status{}
	for _, key := range slices.SortedFunc(maps.Keys(s.sessions), compareKeys) {
		if (principal == "" || key.Principal == principal) &&
			(len(environments) == 0 || slices.Contains(environments, key.Environment)) {
			list = append(list, s.sessions[key].status())
		}
	}
	return list
}

// Status returns a session. It fails with not_found if there is none.
func (s *Sessions) Status(key Key) (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[key]
	if sess == nil {
		return Status{}, notFoundError(key)
	}
	return sess.status(), nil
}

func notFoundError(key Key) *dray.Error {
	return dray.Errorf(dray.CodeNotFound, "there is no Python session %q with the runtime %s",
		key.Name, key.Runtime).
		WithHint("a session exists from its first run; operation status lists yours")
}

func (sess *session) status() Status {
	st := Status{
		Key: sess.key, State: sess.state(), Generation: sess.generation,
		Executable: sess.prepared.Executable, Permissions: sess.permissions,
		HasState: sess.hasState, StateLost: sess.lost > 0, Waiting: len(sess.queue),
		LastUsed: sess.lastUsed, Usage: sess.usage,
	}
	if r := sess.resident; r != nil {
		hello := r.worker.Hello()
		st.Hello = &hello
	}
	return st
}

func (sess *session) state() SessionState {
	switch r := sess.resident; {
	case r != nil && r.ending:
		return Terminating
	case r != nil && sess.holder != nil:
		return Busy
	case r != nil:
		return Idle
	case sess.holder != nil && sess.holder.starting:
		return Starting
	case sess.died:
		return Dead
	default:
		return Cold
	}
}

// Interrupt raises KeyboardInterrupt in the code that a session runs. It does not block, and
// reports whether the session runs code. It fails with not_found if there is no such session.
func (s *Sessions) Interrupt(key Key) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[key]
	if sess == nil {
		return false, notFoundError(key)
	}
	if h := sess.holder; h != nil && h.run != nil {
		h.run.execution.Interrupt()
		return true, nil
	}
	return false, nil
}

// Reset ends the worker of a session at once. A call that runs in it fails with conflict; calls
// that wait run in the next worker. Reset blocks until the worker has ended, or ctx ends. It
// reports whether state was discarded; the next reply does not report that again. It fails with
// not_found if there is no such session.
func (s *Sessions) Reset(ctx context.Context, key Key) (discarded bool, err error) {
	s.mu.Lock()
	sess := s.sessions[key]
	if sess == nil {
		s.mu.Unlock()
		return false, notFoundError(key)
	}
	s.abort(sess, errReset(key))
	discarded = sess.lost > 0
	sess.lost, sess.died, sess.created, sess.permissions = 0, false, false, nil
	s.journal.record(sess.key, sess.generation, false)
	gone := sess.gone()
	s.mu.Unlock()
	select {
	case <-gone:
		return discarded, nil
	case <-ctx.Done():
		return discarded, context.Cause(ctx)
	}
}

// ErrReset is in the chain of the error of a call that Reset has ended, whether its code ran or its
// worker started.
var ErrReset = errors.New("was reset while the call ran")

func errReset(key Key) *dray.Error {
	return dray.Errorf(dray.CodeConflict, "the Python session %q %w", key.Name, ErrReset).
		WithHint("repeat the call; it starts with a new session")
}

// abort ends the worker of a session, the call that runs in it, and the start of a worker.
func (s *Sessions) abort(sess *session, cause *dray.Error) {
	if h := sess.holder; h != nil && h.cause == nil {
		h.cause = cause
		h.cancel(cause)
	}
	s.kill(sess)
}

// gone returns a channel that is closed when the session has no worker.
func (sess *session) gone() <-chan struct{} {
	if sess.resident != nil {
		return sess.resident.gone
	}
	none := make(chan struct{})
	close(none)
	return none
}

// lose records that the state of a session is lost.
func (sess *session) lose() {
	if sess.hasState {
		sess.hasState, sess.lost = false, sess.generation
	}
}

func (sess *session) stopTimer() {
	if sess.idleTimer != nil {
		sess.idleTimer.Stop()
		sess.idleTimer = nil
	}
}
