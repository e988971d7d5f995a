// Package workspace turns a route into an environment that is ready for calls. It finds the
// container of a workspace, brings it up if that is allowed, resolves how calls run in it, and
// caches the result until the engine, the configuration or the trust changes.
//
//	Environments   the provider of each kind of environment, and the call's way through it
//	Manager        containers of workspaces; the provider for containers
//	hostProvider   the host
//
// It never chooses between environments: if the route names a container and there is none, the call
// fails. Another kind of environment is another [Provider], registered where the daemon is wired.
package workspace
