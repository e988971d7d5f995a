// Package event keeps what happens during one call for those who watch it: a bounded log that is
// also the call's [dray.Sink].
//
// The tool's side never waits. Each event gets a sequence number from 1, and any number of readers
// follow from any number on. The newest 4 MiB stay in memory, of a call that nobody has followed
// yet the newest 256 KiB; what is older is read again from the kept output, and what is kept
// nowhere is left out, which a reader sees by the offsets. Output is handed out as soon as it is
// there; a tool that floods is given to its readers in larger pieces instead.
package eventlog
