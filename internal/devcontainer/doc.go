// Package devcontainer knows what a devcontainer is from files and labels alone. It talks to no
// engine: what the engine says of a container is passed in, and what it starts (git, the reference
// CLI) is started by a function that is passed in.
//
//	Locate, FindWorkspace, Nearest   which folder, which devcontainer.json
//	Location.Match                   which of the engine's containers belongs to it
//	Resolve                          user, folder, environment and probe of a call, as `devcontainer exec` has them
//	TrustStore                       whether the owner of this machine agreed to what `up` would do, and what that is
//	Up                               `devcontainer up`, its log as progress, its failure remembered
//
// The rules are those of the reference, @devcontainers/cli; tests compare the two. Where dray
// differs on purpose it is for one of these reasons, and the place says which:
//
//   - The reference takes the newest container even if it has exited while an older one runs, and does not see a container through a
//     link to the workspace. Match prefers a running one and tries the real path too.
//   - `devcontainer exec` leaves ${devcontainerId} as it stands although `up` replaces it. Resolve replaces it.
//   - Any image can ask for a variable of the host by a ${localEnv:NAME} in its label. Only names that the workspace's own configuration
//     uses are given: those are shown when trust is asked.
//   - An unknown userEnvProbe makes the reference probe a plain shell. Resolve probes nothing and says so.
//   - A failing onCreateCommand leaves a container that the next `up` of the reference takes for finished. Up replaces it.
//   - The reference reads each file when it needs it. Up hands it the configuration that was trusted, not what stands there by then.
//
// Everything read here may have been written by a tool that runs in the container: files and labels
// have limits of size and depth, and nothing that is read is run.
package devcontainer
