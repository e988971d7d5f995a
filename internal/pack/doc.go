// Package pack writes and reads messages between programs of one build, or of one protocol: fields
// in their order, without names.
//
//	integer   varint, zigzag where it is signed
//	bool      one byte, 0 or 1
//	text      its length, its bytes (which need not be UTF-8)
//	optional  one byte, 0 or 1, and the value after 1
//	list      how many, then each
//
// A message lists its fields once, for both directions:
//
//	func packExit(f *pack.Fields, e *Exit) {
//		pack.Int(f, &e.Code)
//		pack.List(f, &e.Kept, maxKept, pack.Int)
//		pack.Optional(f, &e.User, packUser)
//	}
//
// so that what writes and what reads cannot drift apart. Whoever wrote what is read is hostile: no
// length is believed beyond what is left of the message, the first fault ends the reading, and
// bytes after the last field are a fault too.
//
// Standard library only, and little of it, because the agent links it: encoding/json would be an
// eighth of that program.
package pack
