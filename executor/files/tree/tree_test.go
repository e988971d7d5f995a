package tree_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/soakreport"
)

// entry is an entry of a tree, sent or received.
type entry struct {
	dray.TreeEntry
	content string
	fail    error // instead of the end of the content
}

// made is a tree in memory.
type made struct {
	entries []entry
	err     error // instead of the end
	now     io.Reader
}

func (m *made) Next() (dray.TreeEntry, error) {
	if len(m.entries) == 0 {
		if m.err != nil {
			return dray.TreeEntry{}, m.err
		}
		return dray.TreeEntry{}, io.EOF
	}
	e := m.entries[0]
	m.entries = m.entries[1:]
	m.now = strings.NewReader(e.content)
	if e.fail != nil {
		m.now = io.MultiReader(m.now, iotest.ErrReader(e.fail))
	}
	return e.TreeEntry, nil
}

func (m *made) Read(p []byte) (int, error) { return m.now.Read(p) }
func (m *made) Close() error               { return nil }

func mkdir(name string) entry {
	return entry{TreeEntry: dray.TreeEntry{Name: name, Type: "directory", Mode: 0o755}}
}

func file(name, content string) entry {
	return entry{TreeEntry: dray.TreeEntry{
		Name: name, Type: "file", Size: int64(len(content)),
		Mode: 0o644, Version: "v1",
	}, content: content}
}

func refused(name string, code dray.Code) entry {
	return entry{TreeEntry: dray.TreeEntry{Name: name, Refused: dray.Errorf(code, "it is odd")}}
}

// sent returns the stream of a tree.
func sent(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tree.Send(&b, &made{entries: entries}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read reads a tree to its end.
func read(t dray.Tree) (all []entry, err error) {
	for {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		content, err := io.ReadAll(t)
		all = append(all, entry{TreeEntry: e, content: string(content)})
		if err != nil {
			return all, err
		}
	}
}

func reader(t testing.TB, stream []byte, what dray.ReadTreeOptions) *tree.Reader {
	t.Helper()
	return newReader(t, bufio.NewReader(bytes.NewReader(stream)), what)
}

func newReader(t testing.TB, in *bufio.Reader, what dray.ReadTreeOptions) *tree.Reader {
	t.Helper()
	r, err := tree.NewReader(in, what)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(a, b entry) bool {
	ra, rb := a.Refused, b.Refused
	a.Refused, b.Refused = nil, nil
	return a == b && (ra == nil) == (rb == nil) &&
		(ra == nil || ra.Code == rb.Code && ra.Message == rb.Message && rb.Hint != "")
}

func names(sources ...string) dray.ReadTreeOptions { return dray.ReadTreeOptions{Names: sources} }

// A tree arrives unchanged, whatever the names and sizes, and however the stream is split. Bytes
// after it are not read.
func TestRoundTrip(t *testing.T) {
	odd := []string{
		"new\nline", "\xff\xfe", strings.Repeat("n", 255), "README", "readme", "caf\u00e9",
		"cafe\u0301", "\x1b[31m", " ", "...",
	}
	want := []entry{
		mkdir("a"), file("a/empty", ""), mkdir("a/b"),
		file("a/b/c", strings.Repeat("x", 3*tree.MaxPiece+1)), refused("a/symlink", dray.CodePathInvalid),
	}
	for _, name := range odd {
		want = append(want, file("a/"+name, name))
	}
	want = append(want, refused("b", dray.CodeNotFound), file("c/d/e", "alone"))
	stream := sent(t, want...)
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "by halves": iotest.HalfReader, "data and error": iotest.DataErrReader,
	} {
		in := bufio.NewReader(cut(io.MultiReader(bytes.NewReader(stream), strings.NewReader("and more"))))
		r := newReader(t, in, names("a", "b", "c/d/e"))
		got, err := read(r)
		rest, _ := io.ReadAll(in)
		if err != nil || !slices.EqualFunc(want, got, same) || !r.Complete() ||
			string(rest) != "and more" {
			t.Errorf("%s: got %d entries of %d, %v, and %q behind them", name, len(got), len(want), err,
				rest)
		}
	}
}

// Skipped entries are validated as well, and the rest arrives.
func TestNextSkipsContent(t *testing.T) {
	r := reader(t, sent(t, mkdir("a"), file("a/1", strings.Repeat("1", 500000)), file("a/2", "two")),
		names("a"))
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.CopyN(io.Discard, r, 300000); err != nil {
		t.Fatal(err)
	}
	rest, err := read(r)
	if err != nil || len(rest) != 1 || rest[0].content != "two" {
		t.Errorf("got %+v, %v", rest, err)
	}
}

// Random trees arrive unchanged.
func TestRoundTrip_RandomTrees(t *testing.T) {
	r := soakreport.Rand(t)
	for range soakreport.Count(20_000, 200) {
		want := randomTree(r, 40)
		sources := sourcesOf(want)
		got, err := read(reader(t, sent(t, want...), sources))
		if err != nil || !slices.EqualFunc(want, got, same) {
			t.Fatalf("sent %+v of %q, got %+v, %v", want, sources.Names, got, err)
		}
	}
}

func randomTree(r *rand.Rand, most int) []entry {
	all := []entry{}
	dirs, used := []string{""}, map[string]bool{}
	for range r.IntN(most) {
		in := dirs[r.IntN(len(dirs))]
		name := path.Join(in, randomComponent(r))
		if used[name] {
			continue
		}
		used[name] = true
		switch r.IntN(4) {
		case 0:
			all = append(all, mkdir(name))
			dirs = append(dirs, name)
		case 1:
			all = append(all, refused(name, dray.CodeDenied))
		default:
			all = append(all, file(name, strings.Repeat("c", randomSize(r))))
		}
	}
	return all
}

func randomComponent(r *rand.Rand) string {
	b := make([]byte, 1+r.IntN(8))
	for i := range b {
		for b[i] = 0; b[i] == 0 || b[i] == '/' || b[i] == '.'; {
			b[i] = byte(r.IntN(256))
		}
	}
	return string(b)
}

func randomSize(r *rand.Rand) int {
	if r.IntN(20) == 0 {
		return tree.MaxPiece - 1 + r.IntN(3)
	}
	return r.IntN(100)
}

func sourcesOf(all []entry) (what dray.ReadTreeOptions) {
	for _, e := range all {
		if !strings.Contains(e.Name, "/") {
			what.Names = append(what.Names, e.Name)
		}
	}
	return what
}

// Only the requested start of a file may be omitted.
func TestReader_PartialFiles(t *testing.T) {
	resumed := func(version string, from int64) []byte {
		e := file("f", "rest")
		e.Size, e.Offset, e.Version = from+4, from, version
		return sent(t, e)
	}
	what := names("f")
	what.Partial = map[string]dray.PartialFile{"f": {Version: "v1", Bytes: 100}}
	got, err := read(reader(t, resumed("v1", 100), what))
	if err != nil || len(got) != 1 || got[0].content != "rest" || got[0].Offset != 100 {
		t.Errorf("got %+v, %v", got, err)
	}
	for version, from := range map[string]int64{"v1": 99, "v2": 100} {
		if got, err := read(reader(t, resumed(version, from),
			what)); dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s from %d: got %+v, %v", version, from, got, err)
		}
	}
	if got, err := read(reader(t, resumed("v1", 100),
		names("f"))); dray.CodeOf(err) != dray.CodeTransferFailed {
		t.Errorf("nothing was held: got %+v, %v", got, err)
	}
}

// An aborted tree fails with the same code for the reader (SY-09).
func TestAbortedTree(t *testing.T) {
	for _, c := range []struct {
		err  error
		want dray.Code
	}{
		{dray.Errorf(dray.CodeTransferFailed, "it changed"), dray.CodeTransferFailed},
		{dray.Errorf(dray.CodeLimitExceeded, "too much"), dray.CodeLimitExceeded},
		{dray.Errorf(dray.CodeUnauthorized, "not its to say"), dray.CodeTransferFailed},
		{errors.New("plain\x1b[2J\nwords"), dray.CodeTransferFailed},
	} {
		torn := file("a/2", "half")
		torn.Size, torn.fail = 100, c.err
		for where, m := range map[string]*made{
			"between": {entries: []entry{mkdir("a"), file("a/1", "x")}, err: c.err},
			"within":  {entries: []entry{mkdir("a"), torn}},
		} {
			var b bytes.Buffer
			if err := tree.Send(&b, m); !errors.Is(err, c.err) {
				t.Errorf("%s: the sender got %v", where, err)
			}
			b.WriteString("and more")
			in := bufio.NewReader(&b)
			r := newReader(t, in, names("a"))
			_, err := read(r)
			_, again := r.Next()
			if dray.CodeOf(err) != c.want || !errors.Is(again, err) || !r.Complete() ||
				strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("%s: got %q (%s), then %v", where, err, dray.CodeOf(err), again)
			}
			if rest, _ := io.ReadAll(in); string(rest) != "and more" {
				t.Errorf("%s: behind it there was %q", where, rest)
			}
		}
	}
}

// A sender refuses invalid trees, for both sides.
func TestSendRefusesInvalidTrees(t *testing.T) {
	short, long, negative := file("f", "short"), file("f", "long"), file("f", "")
	short.Size, long.Size, negative.Offset = 6, 3, -1
	for name, e := range map[string]entry{
		"short": short, "long": long, "negative": negative, "absolute": file("/f",
			""), "no type": {TreeEntry: dray.TreeEntry{Name: "f", Type: "link"}},
	} {
		var b bytes.Buffer
		if err := tree.Send(&b, &made{entries: []entry{e}}); err == nil {
			t.Errorf("%s was sent", name)
		}
		if got, err := read(reader(t, b.Bytes(), names("f"))); err == nil {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

type brokenWriter struct{ left int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// A sender whose stream fails reads no more of the tree.
func TestSend_WriteError(t *testing.T) {
	endless := &made{}
	for i := range 100 {
		endless.entries = append(endless.entries, file(strconv.Itoa(i), strings.Repeat("x", 300000)))
	}
	var broken *tree.WriteError
	err := tree.Send(&brokenWriter{left: 3}, endless)
	if !errors.As(err, &broken) || !errors.Is(err, io.ErrClosedPipe) || len(endless.entries) < 50 {
		t.Errorf("got %v, with %d entries unread", err, len(endless.entries))
	}
}

// NewReaderAny accepts any names, but no inconsistent ones.
func TestNewReaderAny(t *testing.T) {
	anyOf := func(stream []byte, limits dray.TreeLimits) error {
		_, err := read(tree.NewReaderAny(bufio.NewReader(bytes.NewReader(stream)), limits))
		return err
	}
	if err := anyOf(sent(t, file("x/y/a", "1"), file("x/y/b", "2"), mkdir("x/z"), file("x/z/c", "3"),
		file("w", "4")), dray.TreeLimits{MaxFiles: 7}); err != nil {
		t.Error(err)
	}
	if err := anyOf(sent(t, file("1/2/3/4/5/f", "")), dray.TreeLimits{MaxFiles: 6}); err != nil {
		t.Error(err)
	}
	for name, entries := range map[string][]entry{
		"a directory after its content":     {file("x/a", ""), mkdir("x")},
		"a file for a directory":            {file("x/a", ""), file("x", "")},
		"a file as a directory":             {file("x", ""), file("x/a", "")},
		"a file as a directory, further up": {file("x", ""), file("x/y/a", "")},
		"a directory without an entry":      {mkdir("x"), file("x/y/a", "")},
		"a directory that was refused":      {refused("x", dray.CodeDenied), file("x/a", "")},
	} {
		if err := anyOf(sent(t, entries...),
			dray.TreeLimits{}); dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := anyOf(sent(t, file("1/2/3/f", ""), file("4", ""), file("5", "")),
		dray.TreeLimits{MaxFiles: 4}); dray.CodeOf(err) != dray.CodeLimitExceeded {
		t.Errorf("implied directories count too: got %v", err)
	}
}
