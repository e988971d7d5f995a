package tree

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/dray-dev/dray"
)

// Bounds of what may be asked for. The daemon asks, so that they bound a mistake, not an attack.
const (
	maxNames = 1 << 20
	maxLimit = math.MaxInt64
)

// Ask writes what a tree is wanted of: counts and texts as in a tree, the names, the limits, and what is held.
func Ask(w io.Writer, what dray.Collection) error {
	b := binary.AppendUvarint(nil, uint64(len(what.Names)))
	for _, name := range what.Names {
		b = appendText(b, name)
	}
	l := what.Limits
	for _, n := range [...]int64{l.MaxFile, l.MaxTotal, int64(l.MaxFiles), int64(l.MaxDepth)} {
		b = binary.AppendUvarint(b, uint64(max(n, 0)))
	}
	b = binary.AppendUvarint(b, uint64(len(what.Held)))
	for name, held := range what.Held {
		b = binary.AppendUvarint(appendText(appendText(b, name), held.Version), uint64(max(held.Bytes, 0)))
	}
	_, err := w.Write(b)
	return err
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Asked reads what Ask wrote.
func Asked(r *bufio.Reader) (dray.Collection, error) {
	in := asked{input: input{r}}
	var what dray.Collection
	for range in.number(maxNames) {
		what.Names = append(what.Names, in.text(MaxName))
	}
	what.Limits = dray.TreeLimits{
		MaxFile: int64(in.number(maxLimit)), MaxTotal: int64(in.number(maxLimit)), //nolint:gosec // at most maxLimit
		MaxFiles: int(in.number(maxLimit)), MaxDepth: int(in.number(maxLimit)), //nolint:gosec // at most maxLimit
	}
	what.Held = map[string]dray.Held{}
	for range in.number(maxNames) {
		name := in.text(MaxName)
		what.Held[name] = dray.Held{Version: in.text(maxVersion), Bytes: int64(in.number(maxLimit))} //nolint:gosec // at most maxLimit
	}
	return what, in.err
}

// asked reads fields until one fails, and nothing from then on.
type asked struct {
	input
	err error
}

func (a *asked) number(limit uint64) (n uint64) {
	if a.err == nil {
		n, a.err = a.input.number(limit, "number")
	}
	return n
}

func (a *asked) text(limit uint64) (t string) {
	if a.err == nil {
		t, a.err = a.input.text(limit, "text")
	}
	return t
}
