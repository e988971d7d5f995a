// Package agent is the daemon's client of dray-agent, the program that starts processes and serves
// files inside a container. It knows no container engine: a [Container] defines how to install and
// reach the agent, and the same code works for every kind of container.
//
//	Pool          one connected agent for each start of a container, started when first needed
//	environment   processes and files through an agent; a dray.Environment
//	listener      the socket on which an agent authenticates
//
// A connection runs over the agent's stdin and stdout, or over a unix socket in a directory that
// the container has mounted. The agent's hello and what succeeds afterwards decide which.
//
// Data from a container is hostile: it can misreport its own calls and nothing else.
package agent
