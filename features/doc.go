// Package features specifies the behaviour of dray in feature files and tests it: the daemon runs
// in this process, behind its unix socket, with a real engine and real devcontainers. The audit log
// is read from the SQLite file.
//
//	container_tool_exec.feature   a tool in the devcontainer: execution, paths, time, errors, audit log
//	routing.feature               where a call runs, and what is refused
//	workspaces.feature            trust, up, stop, and containers that stop
//	mapping.feature               paths: roots, marked paths, refused paths, symlinks that lead outside
//	files.feature                 the file tools
//	end_to_end.feature            a caller opens the files of a tool by the returned paths
//	capture.feature               captured output: limits, ranges, retention
//	sync.feature                  synced files: sources, refusals, declared outputs, audit log
//	limits.feature                concurrent and queued calls
//	daemon.feature                configuration, requests, logs and drain
//
// TestReference runs the same commands through `devcontainer exec` and `dray exec`, and compares
// the differences with docs/reference/devcontainer-compat.md.
//
// TestSoakRouteTable predicts, explains and executes every combination of routing rules.
//
// Every workspace is a directory of its test; containers and images are found by that directory and
// removed with it.
package features
