// Package agent is the daemon's client of dray-agent, the program that starts processes and serves
// files inside a container. It knows no container engine: a [Container] defines how to install and
// reach the agent, and the same code works for every kind of container.
//
//	Pool          one connected agent for each start of a container, started when first needed
//	environment   processes and files through an agent; a dray.Environment
//	procDir       the process of an agent, by which its socket is reached
//
// A connection runs over the agent's stdin and stdout, or over a unix socket on which the agent
// listens, if its process is on this machine. What succeeds decides which.
//
// Data from a container is hostile: it can misreport its own calls and nothing else.
package agent
