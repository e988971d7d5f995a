// Package executor runs one process of a call on an environment and reports how it ended. The
// packages below it:
//
//	capture         stored output of tools, and its summaries
//	process         start, supervise, stream, stop: the only package that starts processes
//	cgroup          control groups, which prove that no process of a call is left
//	files           files beneath one root, and trees of them
//	host            the host environment
//	container       container environments
//	agentbin        the agent programs, embedded in the daemon
//	executortest    the contract suite that every environment passes
//	hostiletest     tests with hostile tools, containers and engines
package executor
