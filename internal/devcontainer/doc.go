// Package devcontainer implements devcontainers from files and labels. It does not call the engine:
// callers pass what the engine reports of a container, and the functions that start docker compose
// and the reference CLI.
//
//	Locate, FindWorkspace, Nearest   the workspace folder and its devcontainer.json
//	Location.Match                   which of the engine's containers belongs to it
//	Resolve                          user, directory, environment and probe of a call
//	package worktree                 the directory that `up` mounts
//	package compose                  what docker compose makes of a project
//	package trust                    whether the user agreed to what `up` would do, and what that is
//	package up                       `devcontainer up`, its log as progress, its failures recorded
//	package helper                   how these start programs on the host
//
// The rules are those of the reference, @devcontainers/cli; tests compare the two. dray differs on
// purpose in these points:
//
//   - The reference selects the newest container even if it has exited and an older one runs, and
//     does not find the container of a workspace that is reached by a symlink. Match prefers a
//     running one and tries the real path too.
//   - `devcontainer exec` does not replace ${devcontainerId}, although `up` does. Resolve does.
//   - A ${localEnv:NAME} in an image's label can read any variable of the host. Resolve replaces
//     only names that the workspace's configuration uses, which the user saw when trust was asked.
//   - With an unknown userEnvProbe the reference probes a plain shell. Resolve warns and probes
//     none.
//   - After a failed onCreateCommand the next `up` of the reference reuses the container. Package
//     up replaces it.
//   - The reference reads each file when it needs it. Package up passes it the configuration that
//     was trusted, and for a compose project the output of `docker compose config` that was
//     trusted.
//
// A tool in the container may have written everything that is read here: files and labels have
// limits of size and depth, and nothing that is read is run.
package devcontainer
