// Package process starts processes, streams their output and ends them with everything that
// descends from them. It is the only place that starts processes: the host environment uses it in
// the daemon, the container environment inside the agent.
//
// Each call runs under a supervisor of its own: a process of ours that is a child subreaper
// (prctl(2) PR_SET_CHILD_SUBREAPER), so a descendant that called setsid, forked twice or cleared
// its environment comes back to it as a child. wait4(2) answering ECHILD is therefore the proof
// that nothing is left. A supervisor that has proved this is kept warm and serves the next call.
//
//	Pool ── socket pair, descriptors ── Supervise ── fork, exec ── the tool
//
// The parent makes the pipes, or a terminal, owned by the tool's user so that /dev/stdout can be
// opened again, and passes only the tool's ends; or it passes on ends that its own caller made
// (Pool.StartWith). When the parent dies, its end of the socket closes and the supervisor kills all
// that it has.
//
// A supervisor may live in a group of the unified hierarchy (Cgroup): then it kills all of a call
// by one write, and what a tool leaves that killed its supervisor is ended through the group, with
// proof. A call that was told to keep what it leaves (Spec.Keep) gets its supervisor for good: it
// reaps, ends nothing, and outlives the pool.
//
// Standard library only, because the agent links it. Linux only.
package process
