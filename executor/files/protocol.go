package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/internal/pack"
)

// Sizes, in bytes.
const (
	// chunk is how many bytes of a file travel in one message.
	chunk = 256 << 10
	// readAhead is how much of a file comes with its opening.
	readAhead = 64 << 10
	// maxHead bounds the rest of a message, maxListing the names and targets in it: with all that
	// stands around 10,000 of them they stay below.
	maxHead    = 3 << 20
	maxListing = 2 << 20
)

// MaxList is how many entries one listing may have.
const MaxList = 10000

// operation is what the helper is asked for.
type operation uint8

const (
	opStat operation = iota + 1
	opOpen
	opCreate
	opRead
	opWrite
	opClose
	opRename
	opRemove
	opList
	opWalk
	opWalkOn
	opCollect // answered with a tree behind the response; what it is of stands behind the request
	opPlace   // a tree stands behind the request; the answer may come before its end
)

// request is one operation. A message is the length of this, packed, then this, the length of the
// data, the data.
type request struct {
	Op     operation
	Name   string // bytes: a name need not be text
	To     string
	Mode   fs.FileMode
	Offset int64
	Limit  int
	Handle int
	// Of a placement.
	Executable, DryRun bool
}

func packRequest(f *pack.Fields, r *request) {
	pack.Uint(f, &r.Op)
	pack.Text(f, &r.Name)
	pack.Text(f, &r.To)
	pack.Uint(f, &r.Mode)
	pack.Int(f, &r.Offset)
	pack.Int(f, &r.Limit)
	pack.Int(f, &r.Handle)
	pack.Bool(f, &r.Executable)
	pack.Bool(f, &r.DryRun)
}

type response struct {
	Error     *wireError
	Handle    int
	Info      dray.FileInfo
	Entries   []dray.FileInfo
	WalkSteps []wireStep
	Outcomes  []outcome
	More      bool
	EOF       bool
}

func packResponse(f *pack.Fields, r *response) {
	pack.Optional(f, &r.Error, packFailure)
	pack.Int(f, &r.Handle)
	packInfo(f, &r.Info)
	pack.List(f, &r.Entries, MaxList, packInfo)
	pack.List(f, &r.WalkSteps, maxBatch, packTold)
	pack.List(f, &r.Outcomes, MaxList, packOutcome)
	pack.Bool(f, &r.More)
	pack.Bool(f, &r.EOF)
}

func packOutcome(f *pack.Fields, o *outcome) {
	pack.Uint(f, &o.Action)
	pack.Text(f, &o.Sum)
	pack.Text(f, &o.Before)
}

func packInfo(f *pack.Fields, i *dray.FileInfo) {
	pack.Text(f, &i.Name)
	pack.Text(f, &i.Type)
	pack.Int(f, &i.Size)
	pack.Uint(f, &i.Mode)
	pack.Time(f, &i.Modified)
	pack.Text(f, &i.Target)
}

// wireError is an error on its way: its kind, so that errors.Is works on the other side too.
type wireError struct {
	Kind    string
	Code    dray.Code
	Message string
}

func packFailure(f *pack.Fields, x *wireError) {
	pack.Text(f, &x.Kind)
	pack.Text(f, &x.Code)
	pack.Text(f, &x.Message)
}

// errorKinds are what an error is on the other side too. Of several the first counts.
var errorKinds = []struct {
	name string
	err  error
}{
	{"unfinished", stage.ErrCommitIncomplete},
	{"overtaken", stage.ErrConflict},
	{"exist", fs.ErrExist},
	{"not_exist", fs.ErrNotExist},
	{"permission", fs.ErrPermission},
}

func toFailure(err error) *wireError {
	f := &wireError{Message: err.Error()}
	for _, kind := range errorKinds {
		if errors.Is(err, kind.err) {
			f.Kind = kind.name
			break
		}
	}
	if coded, ok := errors.AsType[*dray.Error](err); ok {
		f.Code = coded.Code
	}
	return f
}

// codes are those with which a helper may refuse; any other is not its to give, nor are endless
// words.
var codes = []dray.Code{
	dray.CodePathInvalid, dray.CodeDenied, dray.CodeDiskFull,
	dray.CodeLimitExceeded, dray.CodeTransferFailed, dray.CodeInternal,
}

const maxMessageBytes = 8 << 10 // a path of 4096 bytes twice

func (f *wireError) err() error {
	message := strings.ToValidUTF8(f.Message[:min(len(f.Message), maxMessageBytes)], "\uFFFD")
	kind, code := f.kind(), f.Code
	if kind != nil && code == "" {
		return &remoteError{message: message, kind: kind}
	}
	if !slices.Contains(codes, code) {
		code = dray.CodePathInvalid
	}
	return dray.Errorf(code, "%w", &remoteError{message: message, kind: kind})
}

func (f *wireError) kind() error {
	for _, kind := range errorKinds {
		if kind.name == f.Kind {
			return kind.err
		}
	}
	return nil
}

// remoteError keeps the other side's words and our kind.
type remoteError struct {
	message string
	kind    error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

func writeMessage[T any](w io.Writer, head *T, fields func(*pack.Fields, *T), data []byte) error {
	b := pack.Append(make([]byte, 4, 512+len(data)), head, fields)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))         //nolint:gosec // bounded by MaxList
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data))) //nolint:gosec // at most chunk
	_, err := w.Write(append(b, data...))
	return err
}

// readMessage reads a message into head and gives its data. The peer is not trusted with our
// memory.
func readMessage[T any](r io.Reader, head *T, fields func(*pack.Fields, *T)) ([]byte, error) {
	b, err := readBlock(r, maxHead)
	if err != nil {
		return nil, err
	}
	if err := pack.Decode(b, head, fields); err != nil {
		return nil, fmt.Errorf("decoding a file message: %w", err)
	}
	return readBlock(r, chunk)
}

func readBlock(r io.Reader, limit uint32) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > limit {
		return nil, fmt.Errorf("a file message of %d bytes, at most %d are allowed", n, limit)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
