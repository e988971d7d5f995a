// Package docker makes environments of the containers of a Docker-compatible engine. It finds the
// engine as the docker CLI does, inspects and watches containers, and copies dray-agent into them.
//
//	Engine       the engine's API
//	access       installs and starts the agent of one container; an agent.Access
//	execEnv      processes by the engine's own exec, for containers that cannot run an agent
//
// The protocol of the agent is in executor/agent. What differs between engines is data in
// dialect.go.
package docker
