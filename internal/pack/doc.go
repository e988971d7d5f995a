// Package pack encodes messages between programs of one build, or of one protocol: fields in a
// fixed order, without names.
//
//	integer   varint, zigzag where it is signed
//	bool      one byte, 0 or 1
//	text      length, bytes (not necessarily UTF-8)
//	optional  one byte, 0 or 1, then the value if it is 1
//	list      number of elements, elements
//
// A message lists its fields once, for both directions:
//
//	func packExit(f *pack.Fields, e *Exit) {
//		pack.Int(f, &e.Code)
//		pack.List(f, &e.Kept, maxKept, pack.Int)
//		pack.Optional(f, &e.User, packUser)
//	}
//
// so that encoder and decoder cannot differ. The writer may be hostile: a length must not exceed
// the rest of the message, decoding ends at the first error, and bytes after the last field are an
// error.
//
// The agent links this package. encoding/json would be an eighth of that program.
package pack
