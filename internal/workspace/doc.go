// Package workspace turns a route into an environment that is ready: it finds the container that is
// meant, brings it up where that is allowed, reads how calls run in it, and remembers the answer
// until the engine, the configuration or the trust changes.
//
// It joins three rooms that do not know each other: internal/devcontainer (files and labels),
// executor/container (the engine) and executor/host. It never chooses: where the route says
// container and there is none to be had, the call fails.
package workspace
