// Package tree is the stream format of a dray.Tree. [Send] writes one. [Reader] reads one that an
// untrusted process wrote: it accepts only what was requested, validates every name, order, size and
// count, and keeps only the names in memory.
//
// A stream is the four bytes "drt1" and then records, each a letter and its fields. Numbers are
// uvarints of encoding/binary; a text is its length and its bytes.
//
//	D name mode                         a directory, before its content
//	F name mode version size offset     a file, followed by
//	  C length bytes                    a piece of it, with the length in four bytes, little-endian, and
//	  E                                 its end, after exactly size - offset bytes
//	R name code message                 a refused entry
//	Z entries bytes                     the end: the number of D, F and R, and of bytes of files
//	X code message                      the sender aborts the tree; allowed in place of any record
//
// There are no symlinks, devices, owners, times and holes.
//
// The agent links this package.
package tree
