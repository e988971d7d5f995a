// Command bench measures what a call costs, by every way that leads into a devcontainer, in one run on one machine.
//
//	go run ./bench                            print the tables as Markdown
//	go run ./bench -write docs/benchmarks.md  replace the tables in that file and keep the text around them
//	go run ./bench -check                     also end with status 1 if a target is missed
//
// It makes a workspace, has a daemon of its own bring up the devcontainer through the reference CLI, measures, and removes all of it.
//
//	rig       what is measured on: workspace, daemon, container, engine
//	way       one way to run a command, with the proof that it did run
//	schedule  who runs when: rounds of short blocks, so that a busy moment of the machine hits every way alike
//	stats     quantiles
//	report    the tables, the targets, the machine
package main
