package stage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/dray-dev/dray"
)

// A journal says what a stage folder holds and where it goes: each name beneath its tree is the name beneath the root. It is
//
//	header, stamp, { kind, name, for files: size, SHA-256 } ..., SHA-256 of all before
//
// with integers as uvarints and names after their length. A journal that is cut or altered is none.
const (
	journalHeader = "dray stage journal 1\n"
	maxJournal    = 64 << 20 // bytes
)

const (
	kindThere byte = 'd' // a folder that the destination had
	kindNew   byte = 'n' // one that it had not
	kindFile  byte = 'f'
	kindExec  byte = 'x'
)

type journal struct {
	stamp time.Time // of the commit, so that several are finished in their order
	items []*item
}

var errNoJournal = errors.New("not a whole journal")

func (j journal) encode() ([]byte, error) {
	b := []byte(journalHeader)
	b = binary.AppendUvarint(b, uint64(j.stamp.UnixNano()))
	for _, it := range j.items {
		switch {
		case it.folder && it.found.kind == directory:
			b = appendName(append(b, kindThere), it.name)
			continue
		case it.folder:
			b = appendName(append(b, kindNew), it.name)
			continue
		case it.mode == executableMode:
			b = append(b, kindExec)
		default:
			b = append(b, kindFile)
		}
		b = binary.AppendUvarint(appendName(b, it.name), uint64(it.size)) //nolint:gosec // sizes are not negative
		b = append(b, it.sum[:]...)
	}
	sum := sha256.Sum256(b)
	if b = append(b, sum[:]...); len(b) > maxJournal {
		return nil, dray.Errorf(dray.CodeLimitExceeded, "the names of the tree make a journal of %d bytes, at most %d are allowed", len(b), maxJournal).
			WithHint("place it in parts")
	}
	return b, nil
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

func decodeJournal(b []byte) (journal, error) {
	if len(b) < len(journalHeader)+sha256.Size || !bytes.HasPrefix(b, []byte(journalHeader)) {
		return journal{}, errNoJournal
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if have := sha256.Sum256(body); !bytes.Equal(have[:], sum) {
		return journal{}, errNoJournal
	}
	r := &scanner{rest: body[len(journalHeader):]}
	j := journal{stamp: time.Unix(0, int64(r.number()))} //nolint:gosec // an order, whatever it is
	for r.err == nil && len(r.rest) > 0 {
		j.items = append(j.items, r.item())
	}
	return j, r.err
}

// scanner reads a journal. It trusts nothing: the digest proves that it is whole, not who wrote it.
type scanner struct {
	rest []byte
	err  error
}

func (r *scanner) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.err, r.rest = errNoJournal, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *scanner) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.err, r.rest = errNoJournal, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *scanner) item() *item {
	kind := r.rest[0]
	r.rest = r.rest[1:]
	it := &item{name: string(r.bytes(r.number())), mode: fileMode}
	switch kind {
	case kindThere:
		it.folder, it.mode, it.found.kind = true, folderMode, directory
	case kindNew:
		it.folder, it.mode = true, folderMode
	case kindExec:
		it.mode = executableMode
	case kindFile:
	default:
		r.err = errNoJournal
	}
	if err := checkName(it.name); err != nil && r.err == nil {
		r.err = err
	}
	if !it.folder {
		it.size = int64(r.number() & (1<<63 - 1))
		copy(it.sum[:], r.bytes(sha256.Size))
	}
	return it
}
