// Package stdin is the standard input of a call that the caller writes piece by piece: a bounded
// pipe whose writes carry offsets, so that a repeated write never doubles, and whose writers hear
// soon when the tool does not read.
package stdin
