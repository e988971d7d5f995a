package tree

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// Reader is a dray.Tree over a stream that somebody wrote who is not trusted. What it gives lies
// within the limits and beneath the sources of its Collection, a folder before what it holds, no
// name twice; every source was told of by the end. Its errors are transfer_failed for a stream that
// lies or ends before its end, limit_exceeded for one beyond a limit, and what the sender broke off
// with; each is told again by whatever is called then.
type Reader struct {
	in    recordReader
	rules validator

	headerRead, over bool
	err              error // the end, or what was wrong
	inFile           bool  // the records of a file come
	name             string
	left             int64 // of the file
	piece            int64 // of that, what is left of the current piece
	count, bytes     uint64
	declared         int64 // what the files said that they hold, in all
}

// NewReader reads the tree that a Collection asked for. What follows the tree in the stream stays
// unread. The error is that of Sources.
func NewReader(r *bufio.Reader, what dray.ReadTreeOptions) (*Reader, error) {
	sources, err := Sources(what.Names)
	if err != nil {
		return nil, err
	}
	return &Reader{in: recordReader{r}, rules: newRules(sources, what)}, nil
}

// NewReaderAny is NewReader for a tree of whatever names.
func NewReaderAny(r *bufio.Reader, limits dray.TreeLimits) *Reader {
	return &Reader{in: recordReader{r}, rules: newRules(nil, dray.ReadTreeOptions{Limits: limits})}
}

// Next goes to the next entry and passes over what is left of the current file.
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

// fail keeps the first error, the end of the tree among them.
func (r *Reader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = withCode(err)
	}
}

// withCode gives what the stream's source failed with a code. The end of the tree is io.EOF itself;
// any other end is none.
func withCode(err error) error {
	var coded *dray.Error
	switch {
	case err == errDone: //nolint:errorlint // our own, never wrapped
		return io.EOF
	case errors.As(err, &coded) && errors.Is(err, io.EOF):
		// The end of the agent or of the wire. Who asks whether this is the end of the tree must not be
		// told so.
		return dray.Errorf(coded.Code, "%s", err.Error()).WithHint("%s", coded.Hint)
	case coded != nil:
		return err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return dray.Errorf(dray.CodeTransferFailed, "the files did not come to their end: %w", err).
		WithHint("%s", Hint(dray.CodeTransferFailed))
}

var errDone = errors.New("the end of the tree")

// record reads the next entry, or the end.
func (r *Reader) record() (dray.TreeEntry, error) {
	letter, err := r.in.ReadByte()
	if err != nil {
		return dray.TreeEntry{}, err
	}
	switch letter {
	case recordFolder, recordFile, recordRefused:
		return r.entry(letter)
	case recordDone:
		return dray.TreeEntry{}, r.done()
	case recordAbort:
		return dray.TreeEntry{}, r.readAbort()
	default:
		return dray.TreeEntry{}, protocolError("it has a record %q where an entry belongs", letter)
	}
}

func (r *Reader) entry(letter byte) (dray.TreeEntry, error) {
	name, err := r.in.text(MaxName, "name")
	if err != nil {
		return dray.TreeEntry{}, err
	}
	r.name, r.count = name, r.count+1
	if err := r.rules.admit(name, letter); err != nil {
		return dray.TreeEntry{}, err
	}
	if letter == recordRefused {
		refused, err := r.in.readError(entryCodes)
		return dray.TreeEntry{Name: name, Refused: refused}, err
	}
	mode, err := r.in.number(uint64(fs.ModePerm), "mode")
	// at most fs.ModePerm
	e := dray.TreeEntry{Name: name, Type: typeFolder, Mode: fs.FileMode(mode)} //nolint:gosec
	if err == nil && letter == recordFile {
		err = r.file(&e)
	}
	return e, err
}

// file reads what a file's record has beyond a folder's.
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
	if err := r.rules.checkFile(e, r.declared); err != nil {
		return err
	}
	r.declared += e.Size
	r.inFile, r.left, r.piece = true, e.Size-e.Offset, 0
	return nil
}

// done checks what the end says of the whole.
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
		return protocolError("it says at its end that it had %d entries and %d bytes, and had %d and %d",
			count, bytes, r.count, r.bytes)
	}
	if source, missing := r.rules.missing(); missing {
		return protocolError("it says nothing of %.200q", source)
	}
	r.over = true
	return errDone
}

// readAbort reads why the sender broke off.
func (r *Reader) readAbort() error {
	said, err := r.in.readError(abortCodes)
	if err != nil {
		return err
	}
	r.over = true
	return said
}

// Complete says that the stream was read to where the sender ended it: at the end of the tree, or
// where it broke off. What follows is no part of the tree.
func (r *Reader) Complete() bool { return r.over }

// Read reads the current file. Its end is told only when the sender has said that it is whole.
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
	r.took(n)
	if err != nil {
		return n, r.stop(err)
	}
	return n, nil
}

// skip passes over the current piece, or the end of the file.
func (r *Reader) skip() {
	err := r.advance()
	if err == nil {
		var n int
		n, err = r.in.Discard(int(r.piece))
		r.took(n)
	}
	_ = r.stop(err)
}

func (r *Reader) took(n int) {
	r.piece -= int64(n)
	r.left -= int64(n)
	r.bytes += uint64(n) //nolint:gosec // never negative
}

// stop tells the end of a file from that of the tree.
func (r *Reader) stop(err error) error {
	if err == errFileEnd { //nolint:errorlint // our own, never wrapped
		r.inFile = false
		return io.EOF
	}
	r.fail(err)
	return r.err
}

var errFileEnd = errors.New("the end of the file")

// advance makes sure that there is something left of a piece.
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
			err = protocolError("it has %d bytes for %.200q, of which %d are left", n, r.name, r.left)
		}
		r.piece = n
		return err
	case recordEnd:
		if r.left > 0 {
			return protocolError("it ends %.200q %d bytes early", r.name, r.left)
		}
		return errFileEnd
	case recordAbort:
		return r.readAbort()
	default:
		return protocolError("it has a record %q within %.200q", letter, r.name)
	}
}

// Close gives the tree up. The stream stays its owner's.
func (r *Reader) Close() error {
	r.fail(fs.ErrClosed)
	return nil
}

// protocolError is what no honest sender writes.
func protocolError(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeTransferFailed, "what came is no tree of files: %w",
		fmt.Errorf(format, args...)).
		WithHint("nothing of it was taken; something in the container may be standing in for dray's agent")
}
