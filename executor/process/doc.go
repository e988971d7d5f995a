// Package process starts processes, streams their output, and ends them with all their descendants.
// It is the only package that starts processes: the host environment uses it in the daemon, the
// container environment in the agent.
//
// Each call runs under a supervisor of its own. A supervisor is a child subreaper (prctl(2)
// PR_SET_CHILD_SUBREAPER): a descendant that called setsid, forked twice or cleared its environment
// becomes its child when its parent ends. ECHILD from wait4(2) therefore proves that no descendant
// is left. The pool keeps such a supervisor for the next call.
//
//	Pool ── socket pair, fds ── Supervise ── fork, exec ── the tool
//
// The pool creates the pipes, or a terminal, owned by the tool's user so that the tool can open
// /dev/stdout, and passes only the tool's ends. With Pool.StartWith the caller creates them. When
// the pool's program ends, the supervisor reads end of file from the socket and kills the call.
//
// A supervisor may live in a cgroup v2 (Cgroup). It then kills all processes of a call by one
// write, and the pool kills through the cgroup what a tool leaves that killed its supervisor. The
// supervisor of a call with Spec.Keep stays with the leftover processes: it reaps them, ends none,
// and outlives the pool.
//
// The agent links this package. Linux only.
package process
