package strictjson

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// largeBody is the size in bytes from which hasUniqueNames compares the names of a body. The
// decoder copies each name of an object into a map, which takes seconds for a million of them.
const largeBody = 64 << 10

// hasUniqueNames reports whether data is valid JSON in which no object has a name twice. It may
// return false for unique names with equal hashes: the decoder then decides.
func hasUniqueNames(data []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	names := nameHasher{seed: maphash.MakeSeed()}
	for {
		next, parent := dec.PeekKind(), dec.StackDepth()
		kind, length := dec.StackIndex(parent)
		isName := kind == jsontext.KindBeginObject && length%2 == 0 && next == jsontext.KindString
		var name jsontext.Value
		var err error
		if isName {
			name, err = dec.ReadValue()
		} else {
			_, err = dec.ReadToken()
		}
		switch {
		case errors.Is(err, io.EOF):
			return names.unique()
		case err != nil:
			return false
		case isName:
			names.add(name)
		case dec.StackDepth() > parent:
			names.open(dec.InputOffset())
		case dec.StackDepth() < parent:
			names.close()
		}
	}
}

// nameHasher collects one hash for each name, together with its object. Sorting them is much faster
// than a map of a million names.
type nameHasher struct {
	seed   maphash.Seed
	hashes []uint64
	// enclosing has one number for each object and array that encloses the current value.
	enclosing []uint64
}

func (h *nameHasher) open(offset int64) {
	h.enclosing = append(h.enclosing, maphash.Comparable(h.seed, offset))
}

func (h *nameHasher) close() { h.enclosing = h.enclosing[:len(h.enclosing)-1] }

// add adds a quoted name of the innermost object.
func (h *nameHasher) add(quoted []byte) {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name, _ = jsontext.AppendUnquote(nil, quoted) // the decoder has checked it
	}
	object := h.enclosing[len(h.enclosing)-1]
	h.hashes = append(h.hashes, maphash.Bytes(h.seed, name)^object)
}

func (h *nameHasher) unique() bool {
	slices.Sort(h.hashes)
	return len(slices.Compact(h.hashes)) == len(h.hashes)
}
