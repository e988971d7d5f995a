package tool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// defaultLimit is the maximum number of bytes that read_file returns by default. The schema states
// it.
const defaultLimit = 1 << 20

// jsonInt is an integer as JSON Schema defines it: 10, 10.0 and 1e1 are equal.
type jsonInt int64

// UnmarshalJSON relies on the schema for the range, in which a float64 is exact.
func (w *jsonInt) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	*w = jsonInt(f)
	return err
}

type readInput struct {
	Path   string  `json:"path"`
	Offset jsonInt `json:"offset"`
	Limit  jsonInt `json:"limit"` // zero is defaultLimit
}

type readOutput struct {
	Path       string  `json:"path"`
	Content    *string `json:"content,omitzero"`
	Base64     []byte  `json:"content_base64,omitzero"`
	Size       int64   `json:"size"`
	Truncated  bool    `json:"truncated"`
	NextOffset int64   `json:"next_offset,omitzero"`
	// Rewritten is the number of paths that were rewritten in the content. Nil means that rewriting
	// was off.
	Rewritten *int64 `json:"rewritten,omitzero"`
}

func readFile(ctx context.Context, at fileScope, in readInput) (any, error) {
	limit := cmp.Or(int(in.Limit), defaultLimit)
	file, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	out := readOutput{Path: file.path}
	lead := 0
	if at.rewrite != nil {
		lead = int(min(int64(in.Offset), lookbehindBytes))
	}
	err = at.reading(ctx, file.name, int64(in.Offset)-int64(lead),
		func(r io.Reader, info dray.FileInfo) error {
			// one byte more than requested shows whether there is more, even if the size is unknown
			b, err := io.ReadAll(io.LimitReader(r, int64(lead+limit)+1))
			out.Size = info.Size
			lead = min(lead, len(b))
			out.fill(b[lead:], limit)
			return errors.Join(err, out.rewrite(at.rewrite, b[:lead]))
		})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, file.wrapError("read", err)
	}
	if out.Truncated {
		out.NextOffset += int64(in.Offset)
	}
	return out, nil
}

// fill takes at most limit bytes. It leaves a character that limit would split to the next read.
func (o *readOutput) fill(b []byte, limit int) {
	if len(b) > limit {
		o.Truncated = true
		b = trimPartialRune(b[:limit])
		o.NextOffset = int64(len(b))
	}
	if isText(b) {
		text := string(b)
		o.Content = &text
		return
	}
	o.Base64 = b
}

// maxControls is the number of control characters that any text may have.
const maxControls = 1 << 10

// isText reports whether b is UTF-8 text. JSON needs six bytes for a control character, so a file
// of zeros as text would grow to six times its size in every form of the result.
func isText(b []byte) bool {
	controls := 0
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			controls++
		}
	}
	return controls <= max(len(b)/5, maxControls) && utf8.Valid(b)
}

// lookbehindBytes is how many bytes before a text decide whether a path begins at its start.
const lookbehindBytes = 4 << 10

// rewrite rewrites the paths in the content into the caller's. lead is the text before the content,
// which decides whether a path begins at its start. A path that only the text after the content
// could decide is left to the next read. Sizes and offsets remain those of the file.
func (o *readOutput) rewrite(filter func(io.Writer) dray.TextFilter, lead []byte) error {
	if filter == nil || o.Content == nil {
		return nil
	}
	var out bytes.Buffer
	f := filter(&out)
	if err := errors.Join(writeAll(f, lead), f.Flush()); err != nil {
		return err
	}
	begin, before := out.Len(), f.Replaced()
	if err := writeAll(f, []byte(*o.Content)); err != nil {
		return err
	}
	end := f.Close
	if o.Truncated {
		end = f.Flush
		if decided := len(*o.Content) - f.Buffered(); decided > 0 &&
			utf8.ValidString((*o.Content)[:decided]) {
			o.NextOffset, end = int64(decided), func() error { return nil }
		}
	}
	if err := end(); err != nil {
		return err
	}
	text, count := out.String()[begin:], f.Replaced()-before
	o.Content, o.Rewritten = &text, &count
	return nil
}

func writeAll(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// trimPartialRune drops an incomplete character at the end of UTF-8 text. It returns other bytes
// unchanged, and never returns nothing.
func trimPartialRune(b []byte) []byte {
	for end := len(b) - 1; end > 0 && end >= len(b)-utf8.UTFMax+1; end-- {
		if !utf8.RuneStart(b[end]) {
			continue
		}
		if !utf8.FullRune(b[end:]) && utf8.Valid(b[:end]) {
			return b[:end]
		}
		return b
	}
	return b
}
