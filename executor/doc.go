// Package executor runs one process of a call on an environment and tells how it ended. The rooms
// below it are the environments and what they stand on:
//
//	capture         what tools print, kept and shown
//	process         starts, streams, ends: the only place that starts processes
//	cgroup          control groups, by which the end of a call can be proved
//	files           files beneath one root, and trees of them on their way
//	host            the host as an environment
//	container       containers as environments
//	agentbin        the agent programs inside the daemon
//	executortest    what every environment must do
//	torture         tools, containers and engines that misbehave
package executor
