// Command bench measures what a call costs through dray and through what a user would use instead,
// in one run on one machine.
//
//	go run ./bench                            measure everything and print tables as Markdown
//	go run ./bench calls kill                 measure these parts
//	go run ./bench -write docs/benchmarks.md  replace the tables in that page
//	go run ./bench -check                     exit with status 1 if a target is missed
//
// The parts are calls, parallel, audit, stream, memory, kill, sync, python, mcp and sessions.
//
// It makes a workspace, starts a daemon of its own, which brings up the devcontainer through the
// reference CLI, measures, and removes all of it. What Go benchmarks measure is not here.
package main
