package files

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// After an invalid response all operations fail: responses would not belong to their requests.
func TestClient_InvalidResponses(t *testing.T) {
	valid := encode(response{Info: dray.FileInfo{Size: 12345}})
	for name, reply := range map[string]string{
		"too long":   "\xff\xff\xff\x7f" + strings.Repeat("x", 100),
		"no message": "\x03\x00\x00\x00abc\x00\x00\x00\x00" + valid,
		"data too long": strings.TrimSuffix(encode(response{}), "\x00\x00\x00\x00") + "\xff\xff\xff\x7f" +
			valid,
		"truncated": "\x02\x00",
		"nothing":   "",
	} {
		t.Run(name, func(t *testing.T) {
			c := NewClient(io.Discard, strings.NewReader(reply), func() error { return nil })
			for range 2 {
				if info, err := c.Stat("f"); dray.CodeOf(err) != dray.CodeAgentLost || info.Size != 0 {
					t.Errorf("got %+v, %v", info, err)
				}
			}
		})
	}
	for n, limit := range map[int]int{3: 2, MaxList + 1: MaxList} {
		flood := NewClient(io.Discard, strings.NewReader(encode(response{Entries: make([]dray.FileInfo,
			n), More: true})), func() error { return nil })
		if list, _, err := flood.List(".", limit); dray.CodeOf(err) != dray.CodeAgentLost {
			t.Errorf("%d entries, more than requested: %d, %v", n, len(list), err)
		}
	}
}

// encode returns a message of a helper without data.
func encode(r response) string {
	var b bytes.Buffer
	_ = writeMessage(&b, &r, packResponse, nil) // a buffer takes all
	return b.String()
}

// Messages arrive unchanged, also names that are not text, and times in nanoseconds.
func TestMessageRoundTrip(t *testing.T) {
	info := dray.FileInfo{
		Name: "\xff\n", Type: "symlink", Size: 1 << 40, Mode: 0o644,
		Modified: time.Unix(1700000000, 123456789).UTC(), Target: "\xfe",
	}
	want := response{
		Error: &wireError{Kind: "exist", Code: dray.CodeDenied, Message: "m"}, Handle: 7,
		Info: info, Entries: []dray.FileInfo{info, {}}, More: true, EOF: true,
	}
	var got response
	if data, err := readMessage(strings.NewReader(encode(want)), &got, packResponse); err != nil || len(data) > 0 || !reflect.DeepEqual(got, want) { //nolint:govet // it contains no error
		t.Errorf("got %+v, %v", got, err)
	}
	asked := request{
		Op: opRename, Name: "\xff", To: "b", Mode: 0o600, Offset: -5, Limit: -1,
		Handle: 3,
	}
	var b bytes.Buffer
	_ = writeMessage(&b, &asked, packRequest, []byte("data"))
	var heard request
	if data, err := readMessage(&b, &heard, packRequest); err != nil || string(data) != "data" ||
		heard != asked {
		t.Errorf("got %+v, %q, %v", heard, data, err)
	}
}

// FuzzServe sends any bytes to the helper: it ends, and nothing outside its root changes.
func FuzzServe(f *testing.F) {
	for op := range opWriteTree + 2 {
		var b bytes.Buffer
		_ = writeMessage(&b, &request{Op: op, Name: ".", Handle: 1, Limit: -1, Offset: -5}, packRequest,
			[]byte("x"))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/root", 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Serve(dir+"/root", bytes.NewReader(input), io.Discard)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("beside the root: %v, %v", left, err)
		}
	})
}

// FuzzClient sends any responses to the client: every operation ends.
func FuzzClient(f *testing.F) {
	f.Add([]byte(encode(response{}) + encode(response{Entries: make([]dray.FileInfo, 2)}) +
		encode(response{EOF: true})))
	f.Add([]byte(encode(response{Error: &wireError{Message: "m"}})))
	top := wireStep{step: step{info: dray.FileInfo{Name: ".", Type: "directory"}}}
	f.Add([]byte(encode(response{}) + encode(response{}) +
		encode(response{EOF: true, WalkSteps: []wireStep{
			top,
			{step: step{1, top.info}, refused: &wireError{Code: "x"}},
		}})))
	f.Add([]byte(encode(response{Outcomes: []outcome{{Action: 1, Sum: sha256Of("x")}}})))
	f.Add([]byte(encode(response{}) + oneFile))
	f.Fuzz(func(t *testing.T, input []byte) {
		client := func() *Client { return NewClient(io.Discard, bytes.NewReader(input), func() error { return nil }) }
		readTreeAll(client())
		peer := &answering{Reader: bytes.NewReader(input), asked: make(chan struct{}), writes: 2}
		placed, err := NewClient(peer, peer, func() error { return nil }).
			WriteTree(t.Context(), tree.NewReaderAny(bufio.NewReader(strings.NewReader(oneFile)),
				dray.TreeLimits{}), dray.WriteTreeOptions{})
		if err == nil && (len(placed) != 1 || placed[0].SHA256 != hex.EncodeToString(sha256Of("x"))) {
			t.Errorf("it was believed to have placed %+v", placed)
		}
		c := client()
		_, _ = c.Stat("x")
		_, _, _ = c.List(".", 3)
		_ = c.Walk(context.Background(), ".", func(string, dray.FileInfo) error { return nil })
		if r, _, err := c.Open("x", 0); err == nil {
			_, _ = io.Copy(io.Discard, r)
			_ = r.Close()
		}
	})
}

// answering responds after a number of writes: a request and a tree. Earlier responses would be
// errors.
type answering struct {
	io.Reader
	asked  chan struct{}
	writes int
}

func (l *answering) Write(p []byte) (int, error) {
	if l.writes--; l.writes == 0 {
		close(l.asked)
	}
	return len(p), nil
}

func (l *answering) Read(p []byte) (int, error) {
	<-l.asked
	return l.Reader.Read(p)
}

// oneFile is the stream of a tree with the file f and the content x.
const oneFile = "drt1F\x01f\xa4\x03\x01v\x01\x00C\x01\x00\x00\x00xEZ\x01\x01"

func sha256Of(content string) []byte {
	sum := sha256.Sum256([]byte(content))
	return sum[:]
}

func readTreeAll(c *Client) {
	t, err := c.ReadTree(context.Background(), dray.ReadTreeOptions{Names: []string{"f"}})
	for err == nil {
		_, err = t.Next()
	}
	if t != nil {
		_ = t.Close()
	}
}

// BenchmarkListing sends a directory of a hundred files.
func BenchmarkListing(b *testing.B) {
	list := response{}
	for i := range 100 {
		list.Entries = append(list.Entries,
			dray.FileInfo{
				Name: fmt.Sprintf("file-%d.go", i), Type: "file", Size: 12345, Mode: 0o644,
				Modified: time.Unix(1700000000, int64(i)).UTC(),
			})
	}
	b.ReportAllocs()
	for b.Loop() {
		var r response
		if _, err := readMessage(strings.NewReader(encode(list)), &r, packResponse); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(encode(list))), "bytes")
}
