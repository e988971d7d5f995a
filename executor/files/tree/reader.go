package tree

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// Reader is a dray.Tree that it reads from an untrusted stream. Its entries are within the limits
// and beneath the requested sources, a directory before its content, no name twice, and none of the
// sources is missing. Next and Read fail with transfer_failed for a stream that violates the format
// or is truncated, with limit_exceeded beyond a limit, and with the error of the sender. After an
// error they return it again.
type Reader struct {
	in        recordReader
	validator validator

	headerRead, complete bool
	err                  error // io.EOF at the end of the tree
	inFile               bool
	name                 string
	left                 int64 // bytes of the file
	piece                int64 // bytes of the current piece
	count, bytes         uint64
	declared             int64 // total size of the files
}

// NewReader reads the tree of a request. It does not read bytes after the tree. It fails as Sources
// does.
func NewReader(r *bufio.Reader, what dray.ReadTreeOptions) (*Reader, error) {
	sources, err := Sources(what.Names)
	if err != nil {
		return nil, err
	}
	return &Reader{in: recordReader{r}, validator: newValidator(sources, what)}, nil
}

// NewReaderAny is NewReader for a tree with any names.
func NewReaderAny(r *bufio.Reader, limits dray.TreeLimits) *Reader {
	return &Reader{in: recordReader{r}, validator: newValidator(nil, dray.ReadTreeOptions{Limits: limits})}
}

// Next skips the rest of the current file and returns the next entry.
func (r *Reader) Next() (dray.TreeEntry, error) {
	for r.err == nil && r.inFile {
		r.skip()
	}
	if r.err == nil && !r.headerRead {
		r.headerRead = true
		r.fail(r.in.magic())
	}
	if r.err != nil {
		return dray.TreeEntry{}, r.err
	}
	entry, err := r.record()
	if r.fail(err); r.err != nil {
		return dray.TreeEntry{}, r.err
	}
	return entry, nil
}

// fail records the first error, or the end of the tree.
func (r *Reader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = withCode(err)
	}
}

// withCode adds a code to an error of the stream. The end of the tree becomes io.EOF, and any other
// io.EOF an error that is not io.EOF.
func withCode(err error) error {
	var coded *dray.Error
	switch {
	case err == errDone: //nolint:errorlint // never wrapped
		return io.EOF
	case errors.As(err, &coded) && errors.Is(err, io.EOF):
		// The agent or the connection has ended. Callers must not take that for the end of the tree.
		return dray.Errorf(coded.Code, "%s", err.Error()).WithHint("%s", coded.Hint)
	case coded != nil:
		return err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return dray.Errorf(dray.CodeTransferFailed, "the file stream was truncated: %w", err).
		WithHint("%s", Hint(dray.CodeTransferFailed))
}

var errDone = errors.New("end of the tree")

// record reads the next entry, or the end of the tree.
func (r *Reader) record() (dray.TreeEntry, error) {
	letter, err := r.in.ReadByte()
	if err != nil {
		return dray.TreeEntry{}, err
	}
	switch letter {
	case recordDir, recordFile, recordRefused:
		return r.entry(letter)
	case recordDone:
		return dray.TreeEntry{}, r.done()
	case recordAbort:
		return dray.TreeEntry{}, r.readAbort()
	default:
		return dray.TreeEntry{}, protocolError("unexpected record %q", letter)
	}
}

func (r *Reader) entry(letter byte) (dray.TreeEntry, error) {
	name, err := r.in.text(MaxName, "name")
	if err != nil {
		return dray.TreeEntry{}, err
	}
	r.name, r.count = name, r.count+1
	if err := r.validator.admit(name, letter); err != nil {
		return dray.TreeEntry{}, err
	}
	if letter == recordRefused {
		refused, err := r.in.readError(entryCodes)
		return dray.TreeEntry{Name: name, Refused: refused}, err
	}
	mode, err := r.in.number(uint64(fs.ModePerm), "mode")
	// at most fs.ModePerm
	e := dray.TreeEntry{Name: name, Type: typeDir, Mode: fs.FileMode(mode)} //nolint:gosec
	if err == nil && letter == recordFile {
		err = r.file(&e)
	}
	return e, err
}

// file reads the fields that only files have.
func (r *Reader) file(e *dray.TreeEntry) (err error) {
	e.Type = typeFile
	if e.Version, err = r.in.text(maxVersion, "version"); err != nil {
		return err
	}
	if e.Size, err = r.in.size(); err != nil {
		return err
	}
	if e.Offset, err = r.in.size(); err != nil {
		return err
	}
	if err := r.validator.checkFile(e, r.declared); err != nil {
		return err
	}
	r.declared += e.Size
	r.inFile, r.left, r.piece = true, e.Size-e.Offset, 0
	return nil
}

// done verifies the totals at the end of the tree.
func (r *Reader) done() error {
	count, err := r.in.number(1<<63, "count")
	if err != nil {
		return err
	}
	bytes, err := r.in.number(1<<63, "count")
	if err != nil {
		return err
	}
	if count != r.count || bytes != r.bytes {
		return protocolError("it has %d entries and %d bytes, and declares %d and %d", r.count, r.bytes, count,
			bytes)
	}
	if source, missing := r.validator.missing(); missing {
		return protocolError("%.200q is missing", source)
	}
	r.complete = true
	return errDone
}

// readAbort reads why the sender aborted the tree.
func (r *Reader) readAbort() error {
	reason, err := r.in.readError(abortCodes)
	if err != nil {
		return err
	}
	r.complete = true
	return reason
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
	}
	if err := r.advance(); err != nil {
		return 0, r.stop(err)
	}
	n, err := r.in.readSome(p[:min(int64(len(p)), r.piece)])
	r.consume(n)
	if err != nil {
		return n, r.stop(err)
	}
	return n, nil
}

// skip skips the current piece, or reads the end of the file.
func (r *Reader) skip() {
	err := r.advance()
	if err == nil {
		var n int
		n, err = r.in.Discard(int(r.piece))
		r.consume(n)
	}
	_ = r.stop(err)
}

func (r *Reader) consume(n int) {
	r.piece -= int64(n)
	r.left -= int64(n)
	r.bytes += uint64(n) //nolint:gosec // never negative
}

// stop handles the end of a file, and records any other error.
func (r *Reader) stop(err error) error {
	if err == errFileEnd { //nolint:errorlint // never wrapped
		r.inFile = false
		return io.EOF
	}
	r.fail(err)
	return r.err
}

var errFileEnd = errors.New("end of the file")

// advance reads the start of the next piece, unless the current one has bytes left.
func (r *Reader) advance() error {
	if r.piece > 0 {
		return nil
	}
	letter, err := r.in.ReadByte()
	if err != nil {
		return err
	}
	switch letter {
	case recordPiece:
		n, err := r.in.length()
		if err == nil && (n == 0 || n > MaxPiece || n > r.left) {
			err = protocolError("%.200q has a piece of %d bytes, and %d bytes left", r.name, n, r.left)
		}
		r.piece = n
		return err
	case recordEnd:
		if r.left > 0 {
			return protocolError("%.200q ends %d bytes early", r.name, r.left)
		}
		return errFileEnd
	case recordAbort:
		return r.readAbort()
	default:
		return protocolError("unexpected record %q in %.200q", letter, r.name)
	}
}

// Close ends the tree. It does not close the stream.
func (r *Reader) Close() error {
	r.fail(fs.ErrClosed)
	return nil
}

// protocolError returns a transfer_failed error for a stream that violates the format.
func protocolError(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeTransferFailed, "invalid file stream from the container: %w",
		fmt.Errorf(format, args...)).
		WithHint("nothing was written; a process in the container may be impersonating the agent")
}
