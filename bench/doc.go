// Command bench measures what a call costs, by every way that leads into a devcontainer, in one run
// on one machine.
//
//	go run ./bench                            print the tables as Markdown
//	go run ./bench -only latency,kill         measure these parts: latency, parallel, stream, memory, kill, paths, sync
//	go run ./bench -write docs/benchmarks.md  replace the tables in that file, add a line to its history and keep the text around them
//	go run ./bench -check                     also end with status 1 if a target is missed
//
// It makes a workspace, has a daemon of its own bring up the devcontainer through the reference
// CLI, measures, and removes all of it.
//
//	rig       what is measured on: workspace, daemons, container, engine; tool is the static program that runs in them, rex a server
//	          that others run in the container instead
//	way       one way to run a command, with the proof that it did run; ways are all of them
//	part      what a run consists of: latency (serial), parallel (crowds), stream (flows and calls beside them), memory, kill,
//	          paths (documents and texts), sync (files that come home: hauls)
//	stats     quantiles
//	target    what must hold, and whether it did
//	report    the tables, the history, the machine
package main
