package tree

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"unicode"

	"github.com/dray-dev/dray"
)

// Reader is a dray.Tree that it reads from an untrusted stream. Its entries are within the limits
// and beneath the requested sources, a directory before its content, no name twice, and none of the
// sources is missing. Next and Read fail with transfer_failed for a stream that violates the format
// or is truncated, with limit_exceeded beyond a limit, and with the error of the sender. After an
// error they return it again.
type Reader struct {
	fieldReader // its error is io.EOF at the end of the tree
	validator   validator

	headerRead, complete bool
	inFile               bool
	name                 string
	left                 int64  // bytes of the file
	piece                int64  // bytes of the current piece
	count, total         uint64 // entries, and bytes of the files
	declared             int64  // total size of the files
}

// NewReader reads the tree of a request. It does not read bytes after the tree. It fails as Sources
// does.
func NewReader(r *bufio.Reader, what dray.ReadTreeOptions) (*Reader, error) {
	sources, err := Sources(what.Names)
	if err != nil {
		return nil, err
	}
	return &Reader{fieldReader: fieldReader{in: r}, validator: newValidator(sources, what)}, nil
}

// NewReaderAny is NewReader for a tree with any names.
func NewReaderAny(r *bufio.Reader, limits dray.TreeLimits) *Reader {
	return &Reader{
		fieldReader: fieldReader{in: r},
		validator:   newValidator(nil, dray.ReadTreeOptions{Limits: limits}),
	}
}

// Next skips the rest of the current file and returns the next entry.
func (r *Reader) Next() (dray.TreeEntry, error) {
	for r.err == nil && r.inFile {
		r.skip()
	}
	if r.err == nil && !r.headerRead {
		r.headerRead = true
		if got := r.bytes(uint64(len(magic))); string(got) != magic {
			r.fail(protocolError("it starts with %q", got))
		}
	}
	entry := r.record()
	if r.err != nil {
		return dray.TreeEntry{}, r.err
	}
	return entry, nil
}

// record reads the next entry, or the end of the tree.
func (r *Reader) record() (e dray.TreeEntry) {
	switch letter := r.letter(); letter {
	case recordDir, recordFile, recordRefused:
		return r.entry(letter)
	case recordDone:
		r.done()
	case recordAbort:
		r.readAbort()
	default:
		r.fail(protocolError("unexpected record %q", letter))
	}
	return e
}

func (r *Reader) entry(letter byte) dray.TreeEntry {
	e := dray.TreeEntry{Name: r.text(MaxName, "name"), Type: typeDir}
	r.name, r.count = e.Name, r.count+1
	r.fail(r.validator.admit(e.Name, letter))
	if letter == recordRefused {
		return dray.TreeEntry{Name: e.Name, Refused: r.reason(entryCodes)}
	}
	e.Mode = fs.FileMode(r.number(uint64(fs.ModePerm), "mode")) //nolint:gosec // at most fs.ModePerm
	if letter == recordFile {
		r.file(&e)
	}
	return e
}

// file reads the fields that only files have.
func (r *Reader) file(e *dray.TreeEntry) {
	e.Type = typeFile
	e.Version = r.text(maxVersion, "version")
	e.Size, e.Offset = r.size(), r.size()
	r.fail(r.validator.checkFile(e, r.declared))
	r.declared += e.Size
	r.inFile, r.left, r.piece = true, e.Size-e.Offset, 0
}

// done verifies the totals at the end of the tree.
func (r *Reader) done() {
	count, bytes := r.number(1<<63, "count"), r.number(1<<63, "count")
	source, missing := r.validator.missing()
	switch {
	case r.err != nil:
	case count != r.count || bytes != r.total:
		r.fail(protocolError("it has %d entries and %d bytes, and declares %d and %d", r.count, r.total,
			count, bytes))
	case missing:
		r.fail(protocolError("%.200q is missing", source))
	default:
		r.complete, r.err = true, io.EOF
	}
}

// readAbort reads why the sender aborted the tree.
func (r *Reader) readAbort() {
	reason := r.reason(abortCodes)
	r.complete = r.err == nil
	r.fail(reason)
}

// Complete reports whether the stream was read to the end of the tree, or to the point where the
// sender aborted it.
func (r *Reader) Complete() bool { return r.complete }

// Read reads the current file. It returns io.EOF only after the sender's end of the file.
func (r *Reader) Read(p []byte) (int, error) {
	switch {
	case r.err != nil && !errors.Is(r.err, io.EOF):
		return 0, r.err
	case len(p) == 0:
		return 0, nil
	case !r.inFile:
		return 0, io.EOF
	case !r.advance():
		return 0, cmp.Or(r.err, io.EOF)
	}
	n, err := r.readSome(p[:min(int64(len(p)), r.piece)])
	r.consume(n, err)
	return n, r.err
}

// skip skips the current piece, or reads the end of the file.
func (r *Reader) skip() {
	if r.advance() {
		r.consume(r.in.Discard(int(r.piece)))
	}
}

func (r *Reader) consume(n int, err error) {
	r.piece -= int64(n)
	r.left -= int64(n)
	r.total += uint64(n) //nolint:gosec // never negative
	r.fail(err)
}

// advance reads the start of the next piece, unless the current one has bytes left. It reports
// false at the end of the file and after an error.
func (r *Reader) advance() bool {
	if r.piece > 0 {
		return true
	}
	switch letter := r.letter(); letter {
	case recordPiece:
		r.piece = int64(binary.LittleEndian.Uint32(r.bytes(4)))
		if n := r.piece; n == 0 || n > MaxPiece || n > r.left {
			r.fail(protocolError("%.200q has a piece of %d bytes, and %d bytes left", r.name, n, r.left))
		}
	case recordEnd:
		if r.inFile = false; r.left > 0 {
			r.fail(protocolError("%.200q ends %d bytes early", r.name, r.left))
		}
	case recordAbort:
		r.readAbort()
	default:
		r.fail(protocolError("unexpected record %q in %.200q", letter, r.name))
	}
	return r.err == nil && r.inFile
}

// Close ends the tree. It does not close the stream.
func (r *Reader) Close() error {
	r.fail(fs.ErrClosed)
	return nil
}

// fieldReader reads the fields of records and limits their length. After an error it reads nothing.
type fieldReader struct {
	in  *bufio.Reader
	err error // the first
}

// fail records the first error, with a code.
func (f *fieldReader) fail(err error) {
	if f.err == nil && err != nil {
		f.err = withCode(err)
	}
}

// withCode adds a code to an error of the stream. The result is not io.EOF: callers must not take
// the end of the agent or of the connection for the end of the tree.
func withCode(err error) error {
	coded, ok := errors.AsType[*dray.Error](err)
	switch {
	case ok && errors.Is(err, io.EOF):
		return dray.Errorf(coded.Code, "%s", err.Error()).WithHint("%s", coded.Hint)
	case ok:
		return err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return dray.Errorf(dray.CodeTransferFailed, "the file stream was truncated: %w", err).
		WithHint("%s", Hint(dray.CodeTransferFailed))
}

func (f *fieldReader) letter() (l byte) {
	if f.err == nil {
		var err error
		l, err = f.in.ReadByte()
		f.fail(err)
	}
	return l
}

func (f *fieldReader) number(limit uint64, what string) uint64 {
	if f.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(f.in)
	if err == nil && n > limit {
		err = protocolError("the %s is %d (maximum %d)", what, n, limit)
	}
	if f.fail(err); err != nil {
		return 0
	}
	return n
}

func (f *fieldReader) size() int64 {
	return int64(f.number(math.MaxInt64, "size")) //nolint:gosec // at most MaxInt64
}

func (f *fieldReader) bytes(n uint64) []byte {
	b := make([]byte, n)
	if f.err == nil {
		_, err := io.ReadFull(f.in, b)
		f.fail(err)
	}
	return b
}

func (f *fieldReader) text(limit uint64, what string) string {
	return string(f.bytes(f.number(limit, "length of the "+what)))
}

// maxEmptyReads is the number of empty reads after which a source fails with io.ErrNoProgress.
const maxEmptyReads = 100

// readSome reads at least one byte.
func (f *fieldReader) readSome(p []byte) (int, error) {
	for range maxEmptyReads {
		if n, err := f.in.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// reason reads a code and a message. The message is printable text; the hint is our own.
func (f *fieldReader) reason(list []dray.Code) *dray.Error {
	code := list[f.number(uint64(len(list)-1), "code")] //nolint:gosec // not empty
	message := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, f.text(maxMessage, "message"))
	return dray.Errorf(code, "%s", message).WithHint("%s", Hint(code))
}

// protocolError returns a transfer_failed error for a stream that violates the format.
func protocolError(format string, args ...any) error {
	return dray.Errorf(dray.CodeTransferFailed, "invalid file stream from the container: %w",
		fmt.Errorf(format, args...)).
		WithHint("nothing was written; a process in the container may be impersonating the agent")
}

// validator checks the entries of a tree.
type validator struct {
	limits  dray.TreeLimits
	partial map[string]dray.PartialFile
	strict  bool            // only requested names are allowed
	sources map[string]bool // true after its entry
	seen    map[string]entryState
}

// entryState is an entry, or the implied parent of one in a tree with any names.
type entryState struct {
	dir, implied bool
	inner        int // depth of its content
}

// newValidator returns a validator for a request. Without sources all names are allowed.
func newValidator(sources []string, what dray.ReadTreeOptions) validator {
	v := validator{
		limits: what.Limits, partial: what.Partial, strict: sources != nil,
		sources: map[string]bool{}, seen: map[string]entryState{},
	}
	for _, s := range sources {
		v.sources[s] = false
	}
	return v
}

// admit checks the name of an entry. Refused entries count as well, so that their number is
// limited.
func (v *validator) admit(name string, letter byte) error {
	if err := CheckName(name); err != nil {
		return protocolError("%w", err)
	}
	if _, twice := v.seen[name]; twice {
		return protocolError("%.200q is repeated, or follows its content", name)
	}
	depth, inner, err := v.depth(name)
	if err != nil {
		return err
	}
	if limit := v.limits.MaxFiles; limit > 0 && len(v.seen) >= limit {
		return LimitError("there are more than %d files and directories", limit)
	}
	if limit := v.limits.MaxDepth; limit > 0 && depth > limit && letter != recordRefused {
		return LimitError("%.200q is deeper than %d directories", name, limit)
	}
	v.seen[name] = entryState{dir: letter == recordDir, inner: inner}
	return nil
}

// depth returns the depth of an entry below its source, and that of its content. It fails for an
// entry that is not a source and whose directory is not in the tree.
func (v *validator) depth(name string) (depth, inner int, err error) {
	if _, ok := v.sources[name]; ok {
		v.sources[name] = true
		return 0, 0, nil
	}
	dir, below := parent(name)
	if _, all := v.sources["."]; all && !below {
		return 0, 1, nil
	}
	above, seen := v.seen[dir]
	switch {
	case below && seen && above.dir && !above.implied:
		return above.inner, above.inner + 1, nil
	case v.strict:
		return 0, 0, protocolError("%.200q was not requested, or its directory is missing", name)
	default:
		return 0, 0, v.addParents(name)
	}
}

// addParents adds the parents of a name without a source: they are implied directories.
func (v *validator) addParents(name string) error {
	for dir, below := parent(name); below; dir, below = parent(dir) {
		if above, seen := v.seen[dir]; seen && !above.implied {
			return protocolError("%.200q is not in a directory of the tree", name)
		}
		v.seen[dir] = entryState{dir: true, implied: true}
	}
	return nil
}

// checkFile checks the fields of a file; declared is the total size of the files before it.
func (v *validator) checkFile(e *dray.TreeEntry, declared int64) error {
	partial := v.partial[e.Name]
	switch {
	case strings.ContainsFunc(e.Version, func(c rune) bool { return c <= ' ' || c > '~' }):
		return protocolError("the version of %.200q is not printable", e.Name)
	case e.Offset > e.Size || e.Offset > 0 &&
		(e.Offset != partial.Bytes || e.Version != partial.Version):
		return protocolError("%.200q starts at byte %d, which was not requested", e.Name, e.Offset)
	case declared > math.MaxInt64-e.Size:
		return protocolError("the total size of the files overflows")
	case v.limits.MaxFile > 0 && e.Size > v.limits.MaxFile:
		return LimitError("%.200q has %d bytes (maximum %d)", e.Name, e.Size, v.limits.MaxFile)
	case v.limits.MaxTotal > 0 && declared+e.Size > v.limits.MaxTotal:
		return LimitError("the files have more than %d bytes in total", v.limits.MaxTotal)
	}
	return nil
}

// missing returns a source without an entry.
func (v *validator) missing() (string, bool) {
	for source, seen := range v.sources {
		if !seen && source != "." {
			return source, true
		}
	}
	return "", false
}
