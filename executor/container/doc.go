// Package container makes environments of containers: it finds the engine as the docker CLI does,
// places the agent, keeps one connection to it for each container, and starts processes as
// `devcontainer exec` would.
//
//	Engine       the engine's API: find, inspect, list, copy, exec
//	agents       one living agent for each container, started when first needed
//	environment  processes and files through the agent
//	engineExec   processes through the engine's own exec, where no agent can be placed; the result says so
//
// Whatever comes out of a container is hostile: it can lie about its own calls and do nothing else.
package container
