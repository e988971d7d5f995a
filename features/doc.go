// Package features says in its feature files how dray behaves, and shows it: the daemon runs in
// this process, behind its unix socket, on a real engine with real devcontainers, and its trail is
// read from the SQLite file.
//
//	container_tool_exec.feature   a tool in the devcontainer: execution, paths, time, errors, the trail, the edges
//	routing.feature               where a call runs, and what is refused rather than run elsewhere
//	workspaces.feature            trust, up, stop, and containers that go away
//	mapping.feature               paths on both sides: roots, what is a path, what is refused, links that lead elsewhere
//	story.feature                 a caller opens what a tool made by the paths that it got back
//	capture.feature               what tools print: kept, bounded, read again
//	sync.feature                  files that come home: what comes, what is refused, declared outputs, the trail
//	daemon.feature                configuration, requests, logs and drain
//
// Beside them stands the comparison with the reference: TestReference runs the same commands
// through `devcontainer exec` and through `dray exec` and holds the differences against
// docs/reference/devcontainer-compat.md.
//
// Every workspace here is a folder of the test's own; containers and images are found by that
// folder and removed with it.
package features
