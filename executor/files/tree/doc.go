// Package tree is how a dray.Tree travels as bytes. [Send] writes one; [Reader] is one over bytes
// that somebody else wrote, whom it does not trust: it takes nothing that was not asked for, checks
// every name, order, size and count by itself, and keeps no more of a stream than the names in it.
//
// A stream is the four bytes "drt1" and then records, each a letter and its fields. Numbers are
// uvarints of encoding/binary, texts a number of bytes and the bytes.
//
//	D name mode                       a folder, before anything that lies in it
//	F name mode version size from     a file, followed by
//	  C length bytes                  a piece of it, the length in four bytes, little-endian, and
//	  E                               its end, after exactly size - from bytes
//	R name code message               an entry that is not taken, and why
//	Z entries bytes                   the end of the tree: how many D, F and R there were, and how many bytes of files
//	X code message                    the tree breaks off here, and why; it may stand for any record
//
// There are no links, no devices, no owners, no times and no holes: what is not in the list cannot
// be said.
//
// Standard library only, because the agent links it.
package tree
