package files

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// Sizes, in bytes.
const (
	// chunk is how many bytes of a file travel in one message.
	chunk = 256 << 10
	// maxHead bounds a message's JSON, maxListing the names and targets in it: in base64 and with all that stands around 10,000 of them
	// they stay below.
	maxHead    = 8 << 20
	maxListing = 2 << 20
)

// MaxList is how many entries one listing may have.
const MaxList = 10000

// request is one operation. A message is the length of this as JSON, the JSON, the length of the data, the data.
type request struct {
	Op     string      `json:"op"`
	Name   []byte      `json:"name,omitempty"` // bytes: a name need not be text
	To     []byte      `json:"to,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	Offset int64       `json:"offset,omitempty"`
	Limit  int         `json:"limit,omitempty"`
	Handle int         `json:"handle,omitempty"`
}

type response struct {
	Error   *failure `json:"error,omitempty"`
	Handle  int      `json:"handle,omitempty"`
	Info    *entry   `json:"info,omitempty"`
	Entries []entry  `json:"entries,omitempty"`
	More    bool     `json:"more,omitempty"`
	EOF     bool     `json:"eof,omitempty"`
}

// entry is a FileInfo whose names are bytes.
type entry struct {
	dray.FileInfo
	Name   []byte `json:"name"`
	Target []byte `json:"target,omitempty"`
}

func toEntry(i dray.FileInfo) entry {
	return entry{FileInfo: i, Name: []byte(i.Name), Target: []byte(i.Target)}
}

func (e entry) info() dray.FileInfo {
	i := e.FileInfo
	i.Name, i.Target = string(e.Name), string(e.Target)
	return i
}

// failure is an error on its way: its kind, so that errors.Is works on the other side too.
type failure struct {
	Kind    string    `json:"kind,omitempty"`
	Code    dray.Code `json:"code,omitempty"`
	Message string    `json:"message"`
}

var kinds = map[string]error{"exist": fs.ErrExist, "not_exist": fs.ErrNotExist, "permission": fs.ErrPermission}

func toFailure(err error) *failure {
	f := &failure{Message: err.Error()}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			f.Kind = name
		}
	}
	if coded, ok := errors.AsType[*dray.Error](err); ok {
		f.Code = coded.Code
	}
	return f
}

func (f *failure) err() error {
	if kind := kinds[f.Kind]; kind != nil {
		return &remoteError{message: f.Message, kind: kind}
	}
	code := f.Code
	if code == "" {
		code = dray.CodePathInvalid
	}
	return dray.Errorf(code, "%s", f.Message)
}

// remoteError keeps the other side's words and our kind.
type remoteError struct {
	message string
	kind    error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

func writeMessage(w io.Writer, head any, data []byte) error {
	j, err := json.Marshal(head)
	if err != nil {
		return err
	}
	b := make([]byte, 0, 8+len(j)+len(data))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(j))) //nolint:gosec // bounded by MaxList
	b = append(b, j...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data))) //nolint:gosec // at most chunk
	_, err = w.Write(append(b, data...))
	return err
}

// readMessage reads a message into head and gives its data. The peer is not trusted with our memory.
func readMessage(r io.Reader, head any) ([]byte, error) {
	j, err := readBlock(r, maxHead)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(j, head); err != nil {
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
