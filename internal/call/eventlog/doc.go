// Package eventlog is the bounded log of the events of one call.
//
// The tool is not slowed down by readers. Events have sequence numbers from 1, and each of any number
// of readers starts after any of them. The newest 4 MiB of output are in memory, or 256 KiB while the
// call has no reader. Older output is read from its capture. Output that is not captured is skipped,
// which readers see from the offsets. Output is published at once, and in larger pieces if a tool
// writes faster than that.
package eventlog
