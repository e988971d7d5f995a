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

// WriteRequest writes what a tree is wanted of: counts and texts as in a tree, the names, the limits, and what is held.
func WriteRequest(w io.Writer, what dray.ReadTreeOptions) error {
	b := binary.AppendUvarint(nil, uint64(len(what.Names)))
	for _, name := range what.Names {
		b = appendText(b, name)
	}
	l := what.Limits
	for _, n := range [...]int64{l.MaxFile, l.MaxTotal, int64(l.MaxFiles), int64(l.MaxDepth)} {
		b = binary.AppendUvarint(b, uint64(max(n, 0)))
	}
	b = binary.AppendUvarint(b, uint64(len(what.Partial)))
	for name, held := range what.Partial {
		b = binary.AppendUvarint(appendText(appendText(b, name), held.Version), uint64(max(held.Bytes, 0)))
	}
	_, err := w.Write(b)
	return err
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// ReadRequest reads what Ask wrote.
func ReadRequest(r *bufio.Reader) (dray.ReadTreeOptions, error) {
	in := requestReader{recordReader: recordReader{r}}
	var what dray.ReadTreeOptions
	for range in.number(maxNames) {
		what.Names = append(what.Names, in.text(MaxName))
	}
	what.Limits = dray.TreeLimits{
		MaxFile: int64(in.number(maxLimit)), MaxTotal: int64(in.number(maxLimit)), //nolint:gosec // at most maxLimit
		MaxFiles: int(in.number(maxLimit)), MaxDepth: int(in.number(maxLimit)), //nolint:gosec // at most maxLimit
	}
	what.Partial = map[string]dray.PartialFile{}
	for range in.number(maxNames) {
		name := in.text(MaxName)
		what.Partial[name] = dray.PartialFile{Version: in.text(maxVersion), Bytes: int64(in.number(maxLimit))} //nolint:gosec // at most maxLimit
	}
	return what, in.err
}

// requestReader reads fields until one fails, and nothing from then on.
type requestReader struct {
	recordReader
	err error
}

func (a *requestReader) number(limit uint64) (n uint64) {
	if a.err == nil {
		n, a.err = a.recordReader.number(limit, "number")
	}
	return n
}

func (a *requestReader) text(limit uint64) (t string) {
	if a.err == nil {
		t, a.err = a.recordReader.text(limit, "text")
	}
	return t
}
