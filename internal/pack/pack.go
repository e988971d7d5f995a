package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is returned for bytes that are not a message of the type.
var ErrMalformed = errors.New("malformed message")

// NoLimit is the limit of lists that are bounded by the size of the message only.
const NoLimit = int(^uint(0) >> 1)

// Fields is a message that is being encoded or decoded. Each type has one function that visits its
// fields in a fixed order for both directions.
type Fields struct {
	b       []byte
	reading bool
	err     error // the first one; what is decoded after it is zero
}

// Append appends an encoded message to b.
func Append[T any](b []byte, message *T, fields func(*Fields, *T)) []byte {
	f := Fields{b: b}
	fields(&f, message)
	return f.b
}

// Decode decodes a message that is all of b. Fields of type []byte share its memory. It fails with
// ErrMalformed; message must not be used then.
func Decode[T any](b []byte, message *T, fields func(*Fields, *T)) error {
	rest, err := DecodePrefix(b, message, fields)
	if err == nil && len(rest) > 0 {
		err = malformed("%d bytes after its end", len(rest))
	}
	return err
}

// DecodePrefix is Decode for a message that newer versions may have made longer. It returns the
// rest.
func DecodePrefix[T any](b []byte, message *T, fields func(*Fields, *T)) (rest []byte, err error) {
	f := Fields{b: b, reading: true}
	fields(&f, message)
	return f.b, f.err
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Fail makes decoding fail for a reason of the message type. It does nothing while encoding.
func (f *Fields) Fail(format string, args ...any) {
	if f.reading && f.err == nil {
		f.err = malformed(format, args...)
	}
	if f.reading {
		f.b = nil // nothing more is decoded
	}
}

// Signed are the types of Int.
type Signed interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64
}

// Unsigned are the types of Uint.
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

// skip skips an integer of size bytes. A size of 0 is an integer that is cut short, a negative one
// an integer of more than 64 bits.
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

// Text visits a string or bytes.
func Text[T ~string | ~[]byte](f *Fields, v *T) {
	size := f.count(len(*v), "bytes")
	if !f.reading {
		f.b = append(f.b, *v...)
		return
	}
	*v = T(f.b[:size:size])
	f.b = f.b[size:]
}

// count visits the number of elements. Each takes at least one byte, so a number that exceeds the
// rest of the message is malformed.
func (f *Fields) count(have int, what string) int {
	n := uint64(have) //nolint:gosec // a length
	Uint(f, &n)
	if f.reading && n > uint64(len(f.b)) {
		f.Fail("%d %s, but only %d bytes are left", n, what, len(f.b))
		return 0
	}
	return int(n) //nolint:gosec // a length, or at most what is left
}

// Time visits a time in nanoseconds. It is decoded as UTC.
func Time(f *Fields, v *time.Time) {
	seconds, nanoseconds := v.Unix(), int64(v.Nanosecond())
	Int(f, &seconds)
	Int(f, &nanoseconds)
	if f.reading {
		*v = time.Unix(seconds, nanoseconds).UTC()
	}
}

// Optional visits a value that may be nil.
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

// firstElements bounds the memory that is allocated for a list before it is decoded.
const firstElements = 64

// List visits a list. Each element must have a field. An empty list is decoded as nil, and a list
// of more than limit elements is malformed.
func List[T any](f *Fields, v *[]T, limit int, element func(*Fields, *T)) {
	n := f.count(len(*v), "elements")
	if !f.reading {
		for i := range *v {
			element(f, &(*v)[i])
		}
		return
	}
	*v = nil
	if n > limit {
		f.Fail("%d elements (limit %d)", n, limit)
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
