package python

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// forgedTree is a stream of changed files that no honest worker needs to send.
type forgedTree struct {
	text           strings.Builder
	entries, bytes uint64
}

func forge() *forgedTree {
	f := &forgedTree{}
	f.text.WriteString("drt1")
	return f
}

func (f *forgedTree) number(n uint64) *forgedTree {
	f.text.Write(binary.AppendUvarint(nil, n))
	return f
}

func (f *forgedTree) name(letter, name string) *forgedTree {
	f.entries++
	f.text.WriteString(letter)
	f.number(uint64(len(name))).text.WriteString(name)
	return f
}

func (f *forgedTree) dir(name string) *forgedTree { return f.name("D", name).number(0o755) }

func (f *forgedTree) removed(name string) *forgedTree { return f.name("R", name).number(2).number(0) }

func (f *forgedTree) file(name, content string) *forgedTree {
	return f.fileOf(name, 0o6777&0o777, uint64(len(content)), content)
}

func (f *forgedTree) fileOf(name string, mode, size uint64, content string) *forgedTree {
	f.name("F", name).number(mode).number(0).number(size).number(0)
	if content != "" {
		f.text.WriteString("C")
		f.text.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(content))))
		f.text.WriteString(content)
	}
	f.bytes += uint64(len(content))
	f.text.WriteString("E")
	return f
}

func (f *forgedTree) end() string {
	f.text.WriteString("Z")
	f.number(f.entries).number(f.bytes)
	return f.text.String()
}

// forgedCase is a stream of changed files, and a text that its error has.
type forgedCase struct {
	name, tree string
	kills      bool // the worker; else the commit fails with path_invalid
	naming     string
}

// test sends the stream as the answer to a request in a directory with a.txt and d/in.
func (c forgedCase) test(t *testing.T) {
	above := t.TempDir()
	root := filepath.Join(above, "root")
	for name, content := range map[string]string{"canary": "sings", "root/a.txt": "one", "root/d/in": "two"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(above, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(above, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := files.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	p := readyPeer(t)
	received := newChanges(t.TempDir())
	e, err := p.conn.execute(Request{}, received)
	if err != nil {
		t.Fatal(err)
	}
	run := &pyodideExecution{execution: e, files: &staged{files: opened, workerFiles: &workerFiles{
		root: root, known: map[string]known{
			"a.txt": {sum: sumOf("one"), size: 3, mode: 0o600}, "d": {dir: true, mode: 0o700},
			"d/in": {sum: sumOf("two"), size: 3, mode: 0o600},
		},
	}}}
	p.read()
	text := c.tree
	for len(text) > maxBody {
		p.write(kindChanged, 1, text[:maxBody])
		text = text[maxBody:]
	}
	p.write(kindChangedEnd, 1, text)
	p.write(kindReplyEnd, 1, okReply)
	collect(e)
	_, err = e.Reply()
	want := dray.CodeAgentLost
	if !c.kills {
		if err != nil {
			t.Fatalf("the worker was killed: %v", err)
		}
		want = dray.CodePathInvalid
		_, err = run.Commit(t.Context())
	}
	if dray.CodeOf(err) != want || !strings.Contains(err.Error(), c.naming) {
		t.Errorf("got %v, want %s with %s", err, want, c.naming)
	}
	run.Discard()
	if !run.files.clear && c.kills {
		t.Error("the next call does not stage everything")
	}
	var found []string
	err = filepath.WalkDir(above, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, err := os.ReadFile(name)
			found = append(found, strings.TrimPrefix(name, above)+"="+string(b))
			return err
		}
		return err
	})
	if got := strings.Join(found, " "); err != nil || got != "/canary=sings /root/a.txt=one /root/d/in=two" {
		t.Errorf("there is %s, %v", got, err)
	}
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// A hostile stream of changed files ends the worker or fails the commit, with the path and a code.
// Nothing of it is written, and nothing outside of the directory changes (PY-08, PY-10, PY-18).
func TestForgedChanges(t *testing.T) {
	long := strings.Repeat("n", 256)
	many := forge()
	for i := range uint64(3*MaxEntries + 1) {
		many.removed("m" + strconv.FormatUint(i, 10))
	}
	for _, c := range []forgedCase{
		{"parent", forge().file("../canary", "dead").end(), true, `"../canary"`},
		{"parent inside", forge().file("a/../../canary", "dead").end(), true, `"a/../../canary"`},
		{"absolute", forge().file("/etc/canary", "dead").end(), true, `"/etc/canary"`},
		{"empty name", forge().file("", "dead").end(), true, `""`},
		{"dot", forge().dir(".").end(), true, `"."`},
		{"NUL", forge().file("a\x00b", "dead").end(), true, `"a\x00b"`},
		{"newline", forge().file("x\ny", "dead").end(), false, `"x\ny"`},
		{"not UTF-8", forge().file("\xff", "dead").end(), false, `"\xff"`},
		{"duplicate", forge().file("x", "1").file("x", "2").end(), true, `"x"`},
		{"file twice as directory", forge().file("x", "1").dir("x").end(), true, `"x"`},
		{"case pair", forge().file("x", "1").file("X", "2").end(), false, `"X"`},
		{"case of a staged file", forge().file("A.TXT", "1").end(), false, `"A.TXT"`},
		{"case of a parent", forge().dir("D").file("D/x", "1").end(), false, `"D"`},
		{"file under file", forge().file("x", "1").file("x/y", "2").end(), true, `"x/y"`},
		{"file under a staged file", forge().file("a.txt/y", "2").end(), false, `"a.txt/y"`},
		{"file in no directory", forge().file("no/y", "2").end(), false, `"no/y"`},
		{"file in a removed directory", forge().removed("d").file("e/y", "2").end(), false, `"e/y"`},
		{"removed and never there", forge().removed("none").end(), false, `"none"`},
		{"removed and written", forge().removed("a.txt").file("a.txt", "2").end(), true, `"a.txt"`},
		{"symlink", forge().name("R", "link").number(0).number(7).raw("symlink").end(), false, `"link"`},
		{"set-id", forge().fileOf("x", 0o6755, 1, "x").end(), true, "mode"},
		{"long name", forge().file(long, "x").end(), true, long[:100]},
		{"deep", forge().file(strings.Repeat("d/", 129)+"x", "x").end(), true, "d/d/d"},
		{"shorter than its size", forge().fileOf("x", 0o600, 9, "1").end(), true, `"x"`},
		{"longer than its size", forge().fileOf("x", 0o600, 1, "123").end(), true, `"x"`},
		{"large file", forge().fileOf("x", 0o600, MaxFile+1, "").end(), true, `"x"`},
		{"large in total", largeTree(), true, "134217728"},
		{"many", many.end(), true, "30000"},
		{"wrong count", forge().file("x", "1").raw("Z\x05\x01").text.String(), true, "5"},
		{"truncated", forge().file("x", "1").text.String(), true, "EOF"},
		{"more after the end", forge().end() + "x", true, "after the tree"},
		{"no tree", "drt2", true, "drt2"},
		{"nothing", "", true, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t) })
	}
}

func (f *forgedTree) raw(text string) *forgedTree {
	f.text.WriteString(text)
	return f
}

// largeTree declares more bytes than a run may have.
func largeTree() string {
	f := forge()
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		f.name("F", name).number(0o600).number(0).number(MaxFile).number(0)
		piece := strings.Repeat("x", 256<<10)
		if name == "5" {
			break
		}
		for range MaxFile / len(piece) {
			f.text.WriteString("C")
			f.text.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(piece))))
			f.text.WriteString(piece)
		}
		f.text.WriteString("E")
	}
	return f.end()
}
