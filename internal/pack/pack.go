package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is a message that its kind cannot have been written as.
var ErrMalformed = errors.New("malformed message")

// NoLimit is for lists that nothing bounds but the message itself.
const NoLimit = int(^uint(0) >> 1)

// Fields is a message on its way: what was written of it, or what is left to read. A message, and
// each part of one, has a function that visits its fields in one order, whether it is written or
// read.
type Fields struct {
	b       []byte
	reading bool
	err     error // of the first fault; what is read after it is zero
}

// Append writes a message behind b.
func Append[T any](b []byte, message *T, fields func(*Fields, *T)) []byte {
	f := Fields{b: b}
	fields(&f, message)
	return f.b
}

// Decode reads a message that is all of b. Fields of type []byte share its memory. It fails with
// ErrMalformed, and the message is of no use then.
func Decode[T any](b []byte, message *T, fields func(*Fields, *T)) error {
	rest, err := DecodePrefix(b, message, fields)
	if err == nil && len(rest) > 0 {
		err = malformed("%d bytes follow its end", len(rest))
	}
	return err
}

// DecodePrefix is Decode of a message that others may have made longer; it gives what follows.
func DecodePrefix[T any](b []byte, message *T, fields func(*Fields, *T)) (rest []byte, err error) {
	f := Fields{b: b, reading: true}
	fields(&f, message)
	return f.b, f.err
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Fail ends the reading for a reason of the message's own. While it is written it does nothing.
func (f *Fields) Fail(format string, args ...any) {
	if f.reading && f.err == nil {
		f.err = malformed(format, args...)
	}
	if f.reading {
		f.b = nil // nothing is read after a fault
	}
}

// Signed are the integers that Int takes.
type Signed interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64
}

// Unsigned are those that Uint takes.
type Unsigned interface {
	~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Int visits a signed integer.
func Int[T Signed](f *Fields, v *T) {
	if !f.reading {
		f.b = binary.AppendVarint(f.b, int64(*v))
		return
	}
	n, size := binary.Varint(f.b)
	f.skip(size)
	if *v = T(n); int64(*v) != n {
		f.Fail("%d does not fit", n)
		*v = 0
	}
}

// Uint visits an unsigned integer.
func Uint[T Unsigned](f *Fields, v *T) {
	if !f.reading {
		f.b = binary.AppendUvarint(f.b, uint64(*v))
		return
	}
	n, size := binary.Uvarint(f.b)
	f.skip(size)
	if *v = T(n); uint64(*v) != n {
		f.Fail("%d does not fit", n)
		*v = 0
	}
}

// skip passes over an integer of so many bytes; none is one that is cut short, less is one of more
// than 64 bits.
func (f *Fields) skip(size int) {
	if size <= 0 {
		f.Fail("an integer is missing")
		return
	}
	f.b = f.b[size:]
}

// Bool visits a flag.
func Bool(f *Fields, v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	Uint(f, &n)
	if n > 1 {
		f.Fail("a flag of %d", n)
	}
	*v = n == 1
}

// Text visits bytes, as a string or as they are.
func Text[T ~string | ~[]byte](f *Fields, v *T) {
	size := f.count(len(*v), "bytes")
	if !f.reading {
		f.b = append(f.b, *v...)
		return
	}
	*v = T(f.b[:size:size])
	f.b = f.b[size:]
}

// count visits a number of things, each of which takes a byte at least, so that more of them than
// there are bytes left is a lie.
func (f *Fields) count(have int, what string) int {
	n := uint64(have) //nolint:gosec // a length
	Uint(f, &n)
	if f.reading && n > uint64(len(f.b)) {
		f.Fail("%d %s, and %d are left", n, what, len(f.b))
		return 0
	}
	return int(n) //nolint:gosec // a length, or at most what is left
}

// Time visits a moment, to the nanosecond. It is read as UTC.
func Time(f *Fields, v *time.Time) {
	seconds, nanoseconds := v.Unix(), int64(v.Nanosecond())
	Int(f, &seconds)
	Int(f, &nanoseconds)
	if f.reading {
		*v = time.Unix(seconds, nanoseconds).UTC()
	}
}

// Optional visits what may be nil.
func Optional[T any](f *Fields, v **T, value func(*Fields, *T)) {
	there := *v != nil
	Bool(f, &there)
	switch {
	case !there:
		*v = nil
		return
	case f.reading:
		*v = new(T)
	}
	value(f, *v)
}

// firstElements is what a list has room for before any of it was read.
const firstElements = 64

// List visits a list of at most so many elements, of which each has a field at least. An empty list
// is read as nil. The limit is the reader's.
func List[T any](f *Fields, v *[]T, most int, element func(*Fields, *T)) {
	n := f.count(len(*v), "elements")
	if !f.reading {
		for i := range *v {
			element(f, &(*v)[i])
		}
		return
	}
	*v = nil
	if n > most {
		f.Fail("%d elements, at most %d are allowed", n, most)
	}
	if n == 0 || f.err != nil {
		return
	}
	list := make([]T, 0, min(n, firstElements))
	for i := 0; i < n && f.err == nil; i++ {
		var e T
		element(f, &e)
		list = append(list, e)
	}
	*v = list
}
