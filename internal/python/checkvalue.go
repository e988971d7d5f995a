package python

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxTagDepth bounds the nested arrays and objects of a value with those in its tagged values: a
	// data frame at MaxDepth has a list of rows of cells, which may be tagged as well.
	maxTagDepth = 3 * MaxDepth
	// maxNumber bounds a number in bytes. Python writes a float with 24 at most.
	maxNumber = 40
	// maxExact is the largest integer that every reader of JSON reads exactly. Others are tagged.
	maxExact = 1 << 53
)

// typeMember is the first member of a tagged value; tags has the values that it may have.
const typeMember = "$type"

var tags = []string{
	"int", "float", "bytes", "ndarray", "dataframe", "repr", "circular", "truncated",
}

// checkShape bounds the members of every object before they are compared with each other, which
// takes seconds for a million of them.
func checkShape(body []byte) error {
	w := newWalker(body, jsontext.AllowDuplicateNames(true))
	for done := false; !done; {
		if _, err := w.read(); err != nil {
			return err
		}
		kind, length := w.dec.StackIndex(w.dec.StackDepth())
		if kind == '{' && length > 2*MaxProperties {
			return protocolError("an object has more than %d members", MaxProperties)
		}
		done = w.dec.StackDepth() == 0
	}
	return nil
}

// checkValue checks a value against the limits of PY-05.
func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return protocolError("a value has more than %d bytes", MaxValue)
	}
	w := newWalker(value)
	return w.value(0, MaxDepth)
}

// walker reads JSON token by token.
type walker struct{ dec *jsontext.Decoder }

func newWalker(body []byte, options ...jsontext.Options) walker {
	return walker{dec: jsontext.NewDecoder(bytes.NewBuffer(body), options...)}
}

func (w walker) read() (jsontext.Token, error) {
	t, err := w.dec.ReadToken()
	if err != nil {
		return t, protocolError("its JSON is wrong: %s", describe(err))
	}
	return t, nil
}

// value reads one value that is nested in depth arrays and objects; limit is the maximum depth.
func (w walker) value(depth, limit int) error {
	t, err := w.read()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case '{':
		return w.object(depth+1, limit)
	case '[':
		return w.array(depth+1, limit)
	case '0':
		return checkNumber(t.String())
	default:
		return nil
	}
}

func (w walker) array(depth, limit int) error {
	if depth > limit {
		return depthError()
	}
	for items := 0; w.dec.PeekKind() != ']'; items++ {
		if items == MaxItems {
			return protocolError("an array of a value has more than %d items", MaxItems)
		}
		if err := w.value(depth, limit); err != nil {
			return err
		}
	}
	_, err := w.read()
	return err
}

// object reads an object. A tagged one may be one level deeper, because it replaces a value that is
// too deep.
func (w walker) object(depth, limit int) error {
	for members := 0; w.dec.PeekKind() != '}'; members++ {
		name, err := w.read()
		switch isTag := err == nil && name.String() == typeMember; {
		case err != nil:
			return err
		case isTag && members > 0:
			return protocolError("%s is not the first member of a value", typeMember)
		case isTag && depth <= limit+1:
			limit = maxTagDepth
			err = w.tag()
		case depth > limit:
			return depthError()
		case members == MaxProperties:
			return protocolError("an object of a value has more than %d members", MaxProperties)
		default:
			err = w.value(depth, limit)
		}
		if err != nil {
			return err
		}
	}
	if depth > limit { // it is empty
		return depthError()
	}
	_, err := w.read()
	return err
}

func depthError() error {
	return protocolError("a value is deeper than %d arrays and objects", MaxDepth)
}

// tag reads the type of a tagged value.
func (w walker) tag() error {
	t, err := w.read()
	if err == nil && (t.Kind() != '"' || !slices.Contains(tags, t.String())) {
		err = protocolError("a value has an unknown %s", typeMember)
	}
	return err
}

// checkNumber refuses numbers that some readers of JSON would round.
func checkNumber(text string) error {
	if len(text) > maxNumber {
		return protocolError("a number has more than %d bytes", maxNumber)
	}
	if strings.ContainsAny(text, ".eE") {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return protocolError("a number is no finite float")
		}
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err != nil || n > maxExact || n < -maxExact {
		return protocolError("an integer beyond 2^53 has no tag")
	}
	return nil
}
