package tree_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// forge builds a stream by hand, from the description of the format alone.
func forge(records ...string) []byte { return []byte("drt1" + strings.Join(records, "")) }

// record builds a record of a letter, texts and numbers.
func record(letter byte, fields ...any) string {
	b := []byte{letter}
	for _, field := range fields {
		switch v := field.(type) {
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		case int:
			b = binary.AppendUvarint(b, uint64(v))
		case uint64:
			b = binary.AppendUvarint(b, v)
		}
	}
	return string(b)
}

func dir(name string) string            { return record('D', name, 0o755) }
func head(name string, size any) string { return record('F', name, 0o644, "v", size, 0) }
func piece(content string) string       { return pieceOf(len(content), content) }
func end() string                       { return record('E') }
func done(entries, size int) string     { return record('Z', entries, size) }

func pieceOf(length int, content string) string {
	return string(binary.LittleEndian.AppendUint32([]byte("C"), uint32(length))) + content
}

// Streams with one violation each. The requested directory is "a" (SY-07).
func TestHostileStreams(t *testing.T) {
	const failed, exceeded = dray.CodeTransferFailed, dray.CodeLimitExceeded
	long := strings.Repeat("x", 256)
	limits := dray.TreeLimits{MaxFile: 1000, MaxTotal: 1500, MaxFiles: 10, MaxDepth: 2}
	for name, c := range map[string]struct {
		stream []byte
		want   dray.Code
	}{
		"nothing":                        {nil, failed},
		"not a tree":                     {[]byte("PK\x03\x04 and so on"), failed},
		"another version":                {[]byte("drt2Z\x00\x00"), failed},
		"no entry of what was asked":     {forge(done(0, 0)), failed},
		"not what was asked":             {forge(dir("b"), done(1, 0)), failed},
		"beside what was asked":          {forge(dir("a"), dir("b"), done(2, 0)), failed},
		"a name that begins alike":       {forge(dir("a"), head("ab", 0), end(), done(2, 0)), failed},
		"what was asked, further in":     {forge(dir("b/a"), done(1, 0)), failed},
		"an entry before its directory":  {forge(head("a/f", 0), end(), dir("a"), done(2, 0)), failed},
		"an entry without its directory": {forge(dir("a"), head("a/b/f", 0), end(), done(2, 0)), failed},
		"a file as a directory": {forge(dir("a"), head("a/f", 0), end(), head("a/f/g", 0), end(),
			done(3, 0)), failed},
		"a refused one as a directory": {forge(dir("a"), record('R', "a/f", 0, "symlink"),
			head("a/f/g", 0), end(), done(3, 0)), failed},
		"a file twice": {forge(dir("a"), head("a/f", 0), end(), head("a/f", 0), end(),
			done(3, 0)), failed},
		"a directory twice": {forge(dir("a"), dir("a"), done(2, 0)), failed},
		"a file, then a directory": {
			forge(dir("a"), head("a/f", 0), end(), dir("a/f"), done(3, 0)),
			failed,
		},
		"a refused one, then a file": {forge(dir("a"), record('R', "a/f", 0, "symlink"), head("a/f", 0),
			end(), done(3, 0)), failed},
		"a symlink": {
			forge(dir("a"), record('L', "a/l", "/etc"), done(2, 0)),
			failed,
		},
		"a hole": {forge(dir("a"), head("a/f", 100), record('S', 0, 100), end(),
			done(2, 100)), failed},
		"a letter of nothing":    {forge(dir("a"), "\x00"), failed},
		"a piece without a file": {forge(dir("a"), piece("x")), failed},
		"an end without a file":  {forge(dir("a"), end(), done(1, 0)), failed},
		"a set-id bit":           {forge(record('D', "a", 0o4755), done(1, 0)), failed},
		"a kind in the mode":     {forge(record('D', "a", 0o100755), done(1, 0)), failed},
		"a file that ends early": {forge(dir("a"), head("a/f", 5), piece("1234"), end(),
			done(2, 4)), failed},
		"a file that goes on": {forge(dir("a"), head("a/f", 5), piece("12345"), piece("6"),
			end(), done(2, 6)), failed},
		"a piece beyond the file": {forge(dir("a"), head("a/f", 5), piece("123456"), end(),
			done(2, 6)), failed},
		"a piece of nothing": {forge(dir("a"), head("a/f", 5), piece(""), piece("12345"),
			end(), done(2, 5)), failed},
		"a piece of 4 GiB": {forge(dir("a"), head("a/f", 900),
			pieceOf(math.MaxUint32, "x")), failed},
		"a piece that breaks off": {forge(dir("a"), head("a/f", 900), pieceOf(900, "x")), failed},
		"an entry within a file": {
			forge(dir("a"), head("a/f", 5), piece("1"), dir("a/d")),
			failed,
		},
		"the end within a file": {
			forge(dir("a"), head("a/f", 5), piece("1"), done(2, 1)),
			failed,
		},
		"no end":                     {forge(dir("a"), head("a/f", 1), piece("1"), end()), failed},
		"no end of a file":           {forge(dir("a"), head("a/f", 1), piece("1")), failed},
		"too few entries at the end": {forge(dir("a"), dir("a/b"), done(1, 0)), failed},
		"too many bytes at the end": {
			forge(dir("a"), head("a/f", 1), piece("1"), end(), done(2, 2)),
			failed,
		},
		"a beginning that was not had": {forge(dir("a"), record('F', "a/f", 0o644, "v", 10, 4),
			piece("456789"), end(), done(2, 6)), failed},
		"a beginning beyond the end": {forge(dir("a"), record('F', "a/held", 0o644, "h", 10, 50),
			end(), done(2, 0)), failed},
		"a version of control codes": {forge(dir("a"), record('F', "a/f", 0o644, "\x1b[2J", 0, 0),
			end(), done(2, 0)), failed},
		"a version without an end": {
			forge(dir("a"), record('F', "a/f", 0o644, uint64(1<<40))),
			failed,
		},
		"a name without an end": {forge(record('D', uint64(math.MaxUint64))), failed},
		"a number that is none": {forge("D" + strings.Repeat("\xff", 20)), failed},
		"a code that is none": {
			forge(dir("a"), record('R', "a/f", 99, "x"), done(2, 0)),
			failed,
		},
		"a message without an end": {forge(dir("a"), record('R', "a/f", 0, uint64(1<<30))), failed},
		"a size below zero": {
			forge(dir("a"), head("a/f", uint64(math.MaxUint64)), end()),
			failed,
		},
		"a break that is none":  {forge(dir("a"), record('X', 99, "x")), failed},
		"a break":               {forge(dir("a"), record('X', 1, "enough")), exceeded},
		"a file beyond the cap": {forge(dir("a"), head("a/f", 1001), piece("x")), exceeded},
		"10 GB":                 {forge(dir("a"), head("a/f", 10_000_000_000)), exceeded},
		"all beyond the cap": {forge(dir("a"), head("a/f", 1000),
			piece(strings.Repeat("x", 1000)), end(), head("a/g", 501)), exceeded},
		"all beyond the range": {
			forge(dir("a"), head("a/f", uint64(math.MaxInt64)), end()),
			exceeded,
		},
		"deeper than the cap": {forge(dir("a"), dir("a/1"), dir("a/1/2"), dir("a/1/2/3"),
			dir("a/1/2/3/4"), done(5, 0)), exceeded},
		"too long a part of a name":      {forge(dir("a"), dir("a/"+long), done(2, 0)), failed},
		"a name that is not where it is": {forge(dir("a"), dir("a/../a/b"), done(2, 0)), failed},
	} {
		t.Run(name, func(t *testing.T) {
			what := dray.ReadTreeOptions{
				Names: []string{"a"}, Limits: limits,
				Partial: map[string]dray.PartialFile{"a/held": {Version: "h", Bytes: 50}},
			}
			got, err := read(reader(t, c.stream, what))
			if dray.CodeOf(err) != c.want || dray.AsError(err).Hint == "" {
				t.Errorf("got %+v, %v (%s), want %s", got, err, dray.CodeOf(err), c.want)
			}
		})
	}
	for _, name := range badNames() {
		for letter, stream := range map[byte][]byte{
			'D': forge(dir("a"), dir("a/"+name), done(2, 0)), 'F': forge(dir("a"), head(name, 0), end(),
				done(2, 0)), 'R': forge(dir("a"), record('R', name, 0, "x"), done(2, 0)),
		} {
			if got, err := read(reader(t, stream,
				dray.ReadTreeOptions{
					Names:  []string{"."},
					Limits: limits,
				})); dray.CodeOf(err) != dray.CodeTransferFailed {
				t.Errorf("%c %.40q: got %+v, %v", letter, name, got, err)
			}
		}
	}
}

// An endless stream of entries ends at the limit, also of refused ones (SY-07).
func TestReader_MaxFiles(t *testing.T) {
	for _, letter := range []byte{'D', 'R'} {
		for limit, want := range map[int]dray.Code{
			9: dray.CodeLimitExceeded, 10: dray.CodeLimitExceeded,
			11: "",
		} {
			records := []string{dir("a")}
			for i := range 10 {
				name := "a/" + strconv.Itoa(i)
				if letter == 'D' {
					records = append(records, dir(name))
				} else {
					records = append(records, record('R', name, 1, "x"))
				}
			}
			stream := forge(append(records, done(11, 0))...)
			_, err := read(reader(t, stream, dray.ReadTreeOptions{
				Names:  []string{"a"},
				Limits: dray.TreeLimits{MaxFiles: limit},
			}))
			if dray.CodeOf(err) != want {
				t.Errorf("%c, at most %d: got %v", letter, limit, err)
			}
		}
	}
}

// Every truncated stream is an error (SY-07).
func TestReader_Truncated(t *testing.T) {
	whole := sent(t, mkdir("a"), file("a/f", "content"), refused("a/l", dray.CodePathInvalid),
		mkdir("a/b"), file("b", ""))
	for i := range whole {
		if got, err := read(reader(t, whole[:i],
			names("a", "b"))); dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%d bytes of %d: got %+v, %v", i, len(whole), got, err)
		}
	}
}

// A modified byte leads to the same tree or an error, and never to a name outside (SY-07).
func TestReader_ModifiedByte(t *testing.T) {
	whole := sent(t, mkdir("a"), file("a/f", "content"), refused("a/l", dray.CodePathInvalid))
	for i := range whole {
		for _, b := range []byte{
			0, 1, '/', '.', 'a', 'Z', 0x7f, 0x80, 0xff, whole[i] + 1,
			whole[i] ^ 0x20,
		} {
			stream := bytes.Clone(whole)
			stream[i] = b
			got, err := read(reader(t, stream, names("a")))
			if err != nil && dray.CodeOf(err) != dray.CodeTransferFailed {
				t.Errorf("byte %d as %x: got %v", i, b, err)
			}
			wantBeneath(t, got, "a")
		}
	}
}

func wantBeneath(t *testing.T, got []entry, source string) {
	t.Helper()
	for _, e := range got {
		if e.Name != source && !strings.HasPrefix(e.Name, source+"/") || tree.CheckName(e.Name) != nil {
			t.Errorf("%q came", e.Name)
		}
	}
}

// zeros is the endless content of a file, in pieces.
type zeros struct {
	head  io.Reader
	piece []byte
	rest  []byte
	given int64
}

func (z *zeros) Read(p []byte) (int, error) {
	if n, err := z.head.Read(p); err == nil {
		return n, nil
	}
	if len(z.rest) == 0 {
		z.rest = z.piece
	}
	n := copy(p, z.rest)
	z.rest = z.rest[n:]
	z.given += int64(n)
	return n, nil
}

// Ten gigabytes of zeros are read up to the limit, and not stored (SY-07).
func TestReader_EndlessFile(t *testing.T) {
	const size = 8 << 20
	z := &zeros{
		head:  bytes.NewReader(forge(dir("a"), head("a/f", size))),
		piece: forge(piece(strings.Repeat("\x00", 1<<16)))[4:],
	}
	r := newReader(t, bufio.NewReader(z),
		dray.ReadTreeOptions{Names: []string{"a"}, Limits: dray.TreeLimits{MaxFile: size}})
	_, _ = r.Next()
	_, _ = r.Next()
	n, err := io.Copy(io.Discard, r)
	if n != size || dray.CodeOf(err) != dray.CodeTransferFailed || z.given > size+1<<20 {
		t.Errorf("read %d of %d, %v", n, z.given, err)
	}
}

// A source with only empty reads fails.
func TestReader_NoProgress(t *testing.T) {
	stream := io.MultiReader(bytes.NewReader(forge(dir("a"), head("a/f", 5), pieceOf(5, "1"))),
		stuck{})
	r := newReader(t, bufio.NewReader(stream), names("a"))
	if _, err := read(r); dray.CodeOf(err) != dray.CodeTransferFailed ||
		!errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// A declared size allocates no memory.
func TestDeclaredSizeAllocatesNothing(t *testing.T) {
	stream := forge(dir("a"), head("a/f", uint64(math.MaxInt64)), pieceOf(tree.MaxPiece, "x"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		in := bufio.NewReaderSize(bytes.NewReader(stream), 16)
		r := newReader(t, in, names("a"))
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 100; each > 64<<10 {
		t.Errorf("each took %d bytes", each)
	}
}

// FuzzReader checks that any stream ends, with entries beneath the source, within the limits and in
// order (SY-07).
func FuzzReader(f *testing.F) {
	deep := file("a/b/f", "resumed")
	deep.Size, deep.Offset, deep.Version = 10, 3, "h"
	var torn bytes.Buffer
	_ = tree.Send(&torn, &made{
		entries: []entry{mkdir("a")},
		err:     dray.Errorf(dray.CodeLimitExceeded, "enough"),
	})
	for _, seed := range [][]byte{
		sent(f, mkdir("a"), file("a/f", "content"), mkdir("a/b"), deep,
			refused("a/symlink", dray.CodePathInvalid), file("s", "")),
		sent(f, file("a", strings.Repeat("x", 900)), refused("s", dray.CodeNotFound)),
		sent(f, mkdir("a"), file("a/\xff\n", "odd"), file("s", "1")),
		torn.Bytes(),
		forge(dir("a"), dir("a/../b"), done(2, 0)),
		forge(dir("a"), head("a/f", 5), piece("123456"), end(), done(2, 6)),
		forge(dir("a"), head("a/f", uint64(math.MaxInt64)), pieceOf(math.MaxUint32, "x")),
		forge(dir("a"), record('R', "a/f", 0, "x"), head("a/f", 0), end(), done(3, 0)),
		forge(record('D', uint64(math.MaxUint64))),
	} {
		f.Add(seed)
		for at := 4; at < len(seed); at += 7 { // mutations of what is right get further than chance does
			changed := bytes.Clone(seed)
			changed[at] ^= 0x41
			f.Add(changed)
			f.Add(seed[:at])
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		what := dray.ReadTreeOptions{
			Names:   []string{"a", "s"},
			Limits:  dray.TreeLimits{MaxFile: 1 << 10, MaxTotal: 2 << 10, MaxFiles: 8, MaxDepth: 2},
			Partial: map[string]dray.PartialFile{"a/b/f": {Version: "h", Bytes: 3}},
		}
		got, err := read(reader(t, stream, what))
		if err != nil && dray.CodeOf(err) != dray.CodeTransferFailed &&
			dray.CodeOf(err) != dray.CodeLimitExceeded && dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("got %v", err)
		}
		if fault := broken(got, err == nil); fault != nil {
			t.Error(fault)
		}
	})
}

// broken returns how a received tree violates the rules; nil if it does not.
func broken(got []entry, whole bool) error {
	kinds, total := map[string]string{}, int64(0)
	for i, e := range got {
		top, rest, below := strings.Cut(e.Name, "/")
		_, came := kinds[e.Name]
		switch last := i == len(got)-1 && !whole; {
		case tree.CheckName(e.Name) != nil, top != "a" && top != "s", came:
			return fmt.Errorf("%q came, or came again", e.Name)
		case below && kinds[e.Name[:strings.LastIndexByte(e.Name, '/')]] != "directory":
			return fmt.Errorf("%q has no directory", e.Name)
		case strings.Count(rest, "/") > 2 && e.Refused == nil:
			return fmt.Errorf("%q is deep", e.Name)
		case e.Type == "file" && (e.Size > 1<<10 || !last && int64(len(e.content)) != e.Size-e.Offset ||
			e.Offset != 0 && e.Offset != 3):
			return fmt.Errorf("%q has %d bytes from %d, and came with %d", e.Name, e.Size, e.Offset,
				len(e.content))
		}
		kinds[e.Name] = e.Type
		total += e.Size
	}
	if total > 2<<10 || len(got) > 8 || whole &&
		(kinds["a"] == "" && !refusedIn(got, "a") || kinds["s"] == "" && !refusedIn(got, "s")) {
		return fmt.Errorf("%d entries of %d bytes", len(got), total)
	}
	return nil
}

func refusedIn(got []entry, name string) bool {
	for _, e := range got {
		if e.Name == name && e.Refused != nil {
			return true
		}
	}
	return false
}
