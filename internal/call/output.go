package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/dray-dev/dray"
)

// Outputs reads the retained output of calls that run or have ended.
type Outputs struct {
	Calls *Registry
	// Open opens the captured output of a call in the form of its events. It fails with
	// fs.ErrNotExist for a stream that was never written or is no longer retained.
	Open func(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// Record returns the record of a call that a viewer may see. It fails with not_found.
	Record func(ctx context.Context, viewer, id string) (dray.Record, error)
	Access Access
}

// OutputPart is a part of a stream.
type OutputPart struct {
	ID       string      `json:"id"`
	Status   dray.Status `json:"status"`
	Reason   dray.Reason `json:"reason,omitempty"`
	ExitCode *int        `json:"exit_code,omitempty"`
	Stream   string      `json:"stream"`
	Text     string      `json:"text"`
	Offset   int64       `json:"offset"`
	// Next is the offset of the byte after Text, Size the number of bytes so far.
	Next int64 `json:"next_offset"`
	Size int64 `json:"size"`
}

// Find returns a call that a principal may see, if it is in memory, and its record in any case. It
// fails with not_found.
func (o *Outputs) Find(ctx context.Context, principal, id string) (*Call, dray.Record, error) {
	viewer := o.Access.Viewer(principal)
	if c, ok := o.Calls.Find(id, viewer); ok {
		rec := c.Record()
		return c, rec, nil
	}
	rec, err := o.Record(ctx, viewer, id)
	return nil, rec, err
}

// Part returns at most limit bytes of a stream of a call that Find has returned.
func (o *Outputs) Part(c *Call, rec dray.Record, stream dray.Stream, offset, limit int64,
) (OutputPart, error) {
	text, size, err := o.read(c, rec, stream, offset, limit)
	return OutputPart{
		ID: rec.ID, Status: rec.Status, Reason: rec.Reason, ExitCode: rec.ExitCode,
		Stream: stream.String(), Text: strings.ToValidUTF8(string(text), "\uFFFD"), Offset: offset,
		Next: offset + int64(len(text)), Size: size,
	}, err
}

// read returns at most limit bytes of a stream, and how many bytes there are.
func (o *Outputs) read(c *Call, rec dray.Record, stream dray.Stream, offset, limit int64,
) ([]byte, int64, error) {
	f, err := o.Open(rec.ID, stream)
	if errors.Is(err, fs.ErrNotExist) {
		return readMemory(c, rec, stream, offset, limit)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open the captured output: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(min(offset, size), io.SeekStart)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the captured output: %w", err)
	}
	piece, err := io.ReadAll(io.LimitReader(f, limit))
	return piece, size, err
}

// readMemory reads a stream without a capture: short output, or that of a call that has just begun.
func readMemory(c *Call, rec dray.Record, stream dray.Stream, offset, limit int64,
) ([]byte, int64, error) {
	var all []byte
	var whole bool
	if c != nil && rec.EndedAt == nil {
		all, whole = c.Events().BufferedOutput(stream)
	} else {
		summary := rec.Stdout
		if stream == dray.Stderr {
			summary = rec.Stderr
		}
		all, whole = summary.Whole(true)
	}
	if !whole {
		return nil, 0, dray.Errorf(dray.CodeNotFound, "the output of this call is no longer kept").
			WithHint("see limits.captures_keep and limits.captures_disk; repeat the call")
	}
	size := int64(len(all))
	from := min(offset, size)
	return all[from:min(size, from+limit)], size, nil
}
