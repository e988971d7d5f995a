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
	// chunk is the maximum size of the file data in one message.
	chunk = 256 << 10
	// readAhead is the size of the file data in the response to opOpen.
	readAhead = 64 << 10
	// maxHead is the maximum size of the rest of a message, maxListing that of the names and targets
	// in it. 10,000 entries with that many bytes of names are smaller than maxHead.
	maxHead    = 3 << 20
	maxListing = 2 << 20
)

// MaxList is the maximum number of entries that List returns.
const MaxList = 10000

// operation is an operation of the helper.
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
	opWalkNext
	opReadTree  // a tree request follows the request, and a tree the response
	opWriteTree // a tree follows the request; the response may come before its end
)

// request is the request of one operation. A message has the length of the packed request, the
// request, the length of the data, and the data.
type request struct {
	Op     operation
	Name   string // any bytes
	To     string
	Mode   fs.FileMode
	Offset int64
	Limit  int
	Handle int
	// Options of opWriteTree.
	Executable, DryRun, RefuseRepositories bool
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
	pack.Bool(f, &r.RefuseRepositories)
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
	pack.Optional(f, &r.Error, packError)
	pack.Int(f, &r.Handle)
	packInfo(f, &r.Info)
	pack.List(f, &r.Entries, MaxList, packInfo)
	pack.List(f, &r.WalkSteps, maxBatch, packStep)
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

// wireError is an error in a message. Its kind makes errors.Is work on the other side.
type wireError struct {
	Kind    string
	Code    dray.Code
	Message string
}

func packError(f *pack.Fields, x *wireError) {
	pack.Text(f, &x.Kind)
	pack.Text(f, &x.Code)
	pack.Text(f, &x.Message)
}

// errorKinds are the errors for which errors.Is works on the other side. The first match counts.
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

func newWireError(err error) *wireError {
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

// helperCodes are the codes that a helper may return.
var helperCodes = []dray.Code{
	dray.CodePathInvalid, dray.CodeDenied, dray.CodeDiskFull,
	dray.CodeLimitExceeded, dray.CodeTransferFailed, dray.CodeInternal,
}

// maxMessageBytes is the maximum size of an error message: two paths of 4096 bytes.
const maxMessageBytes = 8 << 10

func (f *wireError) err() error {
	message := strings.ToValidUTF8(f.Message[:min(len(f.Message), maxMessageBytes)], "\uFFFD")
	err := &remoteError{message: message}
	for _, kind := range errorKinds {
		if kind.name == f.Kind {
			err.kind = kind.err
		}
	}
	switch {
	case err.kind != nil && f.Code == "":
		return err
	case slices.Contains(helperCodes, f.Code):
		return dray.Errorf(f.Code, "%w", err)
	default:
		return dray.Errorf(dray.CodePathInvalid, "%w", err)
	}
}

// remoteError has the message of the other side, and unwraps to our error of that kind.
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

// readMessage reads a message into head and returns its data. It bounds the memory that the peer
// can make it use.
func readMessage[T any](r io.Reader, head *T, fields func(*pack.Fields, *T)) ([]byte, error) {
	b, err := readBlock(r, maxHead)
	if err != nil {
		return nil, err
	}
	if err := pack.Decode(b, head, fields); err != nil {
		return nil, fmt.Errorf("decode a file message: %w", err)
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
		return nil, fmt.Errorf("a file message has %d bytes (maximum %d)", n, limit)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
