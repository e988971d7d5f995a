package files

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// counted is a tree of files of 1 MiB; first is the name of the first one.
type counted struct {
	first     string
	files, at int
	left      int
}

func (c *counted) Next() (dray.TreeEntry, error) {
	if c.at == c.files {
		return dray.TreeEntry{}, io.EOF
	}
	c.at++
	c.left = 1 << 20
	name := strings.Repeat("n", c.at)
	if c.at == 1 {
		name = c.first
	}
	return dray.TreeEntry{Name: name, Type: "file", Size: 1 << 20}, nil
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	clear(p[:n])
	c.left -= n
	return n, nil
}

func (*counted) Close() error { return nil }

// helped returns a client of a helper in this process.
func helped(t *testing.T, root string) *Client {
	t.Helper()
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(root, theirIn, theirOut)
		_ = theirOut.CloseWithError(io.EOF)
		_ = theirIn.Close()
		served <- err
	}()
	c := NewClient(ourOut, ourIn, func() error {
		_ = ourOut.Close()
		return <-served
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// After an error of the helper the rest of the tree is not sent.
func TestWriteTree_HelperFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	c := helped(t, dir)
	much := &counted{first: "sub", files: 255}
	if _, err := c.WriteTree(t.Context(), much,
		dray.WriteTreeOptions{}); dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("got %v", err)
	}
	if much.at > 20 { // pipes and buffers may have taken some
		t.Errorf("%d files were sent", much.at)
	}
	if _, err := c.Stat("sub"); err != nil {
		t.Errorf("the helper handles no other operation: %v", err)
	}
}

// A helper without its root responds before it reads the tree.
func TestWriteTree_NoRoot(t *testing.T) {
	c := helped(t, t.TempDir()+"/none")
	if _, err := c.WriteTree(t.Context(), &counted{first: "x", files: 3},
		dray.WriteTreeOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// The files that a helper reports must be those that it was sent (SY-10).
func TestWriteTree_InvalidResponses(t *testing.T) {
	sum := strings.Repeat("\x00", 32)
	// SHA-256 of 1 MiB of zeros
	zeros := "\x30\xe1\x49\x55\xeb\xf1\x35\x22\x66\xdc\x2f\xf8\x06\x7e\x68\x10\x46\x07\xe7\x50\xab\xb9\xd3\xb3\x65\x82\xb8\xaf\x90\x9f\xcb\x58"
	for _, c := range []struct {
		name  string
		reply string
		want  dray.Code
		after bool // other operations may follow
	}{
		{"nothing", "", dray.CodeAgentLost, false},
		{"no message", "\x03\x00\x00\x00abc", dray.CodeAgentLost, false},
		{
			"another digest", encode(response{Outcomes: []outcome{{1, []byte(sum), nil}}}),
			dray.CodeTransferFailed, true,
		},
		{
			"no digest", encode(response{Outcomes: []outcome{{1, nil, nil}}}), dray.CodeTransferFailed,
			true,
		},
		{
			"no action", encode(response{Outcomes: []outcome{{0, []byte(zeros), nil}}}),
			dray.CodeTransferFailed, true,
		},
		{
			"an unknown action", encode(response{Outcomes: []outcome{{4, []byte(zeros), nil}}}),
			dray.CodeTransferFailed, true,
		},
		{
			"half a digest", encode(response{Outcomes: []outcome{{2, []byte(zeros), []byte("x")}}}),
			dray.CodeTransferFailed, true,
		},
		{"too few", encode(response{}), dray.CodeTransferFailed, true},
		{"too many", encode(response{Outcomes: make([]outcome, 2)}), dray.CodeAgentLost, false},
		{
			"without end", encode(response{More: true}) + encode(response{More: true}), dray.CodeAgentLost,
			false,
		},
		{"a code of the daemon", encode(response{Error: &wireError{
			Code:    dray.CodeShuttingDown,
			Message: "m",
		}}), dray.CodePathInvalid, true},
		{"a valid response", encode(response{Outcomes: []outcome{{1, []byte(zeros), nil}}}), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The helper responds after the tree: an earlier response could only be an error.
			out, in := io.Pipe()
			much := &counted{first: "x", files: 1}
			client := NewClient(listener{to: in, reply: c.reply}, out, out.Close)
			placed, err := client.WriteTree(t.Context(), much, dray.WriteTreeOptions{})
			if got := dray.CodeOf(err); got != c.want || (err == nil) != (len(placed) == 1) {
				t.Errorf("got %+v, %v (%s)", placed, err, got)
			}
			if after := client.err == nil; after != c.after {
				t.Errorf("other operations may follow: %v (%v)", after, client.err)
			}
		})
	}

	// An early success is an invalid response.
	synctest.Test(t, func(t *testing.T) {
		client := NewClient(io.Discard, strings.NewReader(encode(response{Outcomes: []outcome{{
			1,
			[]byte(zeros), nil,
		}}})), func() error { return nil })
		placed, err := client.WriteTree(t.Context(), &late{counted: counted{first: "x", files: 1}},
			dray.WriteTreeOptions{})
		if dray.CodeOf(err) != dray.CodeAgentLost {
			t.Errorf("got %+v, %v", placed, err)
		}
	})
}

// listener responds when the tree was sent.
type listener struct {
	to        *io.PipeWriter
	reply     string
	meanwhile func() // called before the reply; nil for nothing
}

func (l listener) Write(p []byte) (int, error) {
	if strings.HasSuffix(string(p), "Z\x01\x80\x80\x40") { // the end of a tree: one entry, a MiB
		if l.meanwhile != nil {
			l.meanwhile()
		}
		go func() {
			_, _ = io.WriteString(l.to, l.reply)
			_ = l.to.Close()
		}()
	}
	return len(p), nil
}

// late is a tree whose entries arrive when all goroutines wait.
type late struct{ counted }

func (l *late) Next() (dray.TreeEntry, error) {
	synctest.Wait()
	return l.counted.Next()
}

// The end of the context does not hide an incomplete commit (SY-06).
func TestWriteTree_CommitIncomplete(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	cause := dray.Errorf(dray.CodeDenied, "%w: %w", stage.ErrCommitIncomplete, os.ErrPermission)
	client := NewClient(listener{
		to: in, reply: encode(response{Error: newWireError(cause)}),
		meanwhile: cancel,
	}, out, out.Close)
	_, err := client.WriteTree(ctx, &counted{first: "x", files: 1}, dray.WriteTreeOptions{})
	if !errors.Is(err, stage.ErrCommitIncomplete) || dray.AsError(err).Hint == "" {
		t.Errorf("got %v, hint %q", err, dray.AsError(err).Hint)
	}
}

// A full disk has its code and a hint, local and in a helper (SY-09).
func TestWriteTree_DiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k,mode=700"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	local, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	for where, f := range map[string]dray.Files{"local": local, "helper": helped(t, dir)} {
		_, err := f.WriteTree(t.Context(), &counted{first: "x", files: 2}, dray.WriteTreeOptions{})
		if dray.CodeOf(err) != dray.CodeDiskFull || dray.AsError(err).Hint == "" {
			t.Errorf("%s: got %v (%s), hint %q", where, err, dray.CodeOf(err), dray.AsError(err).Hint)
		}
	}
}

// A stuck helper is ended after the context, and so is the call.
func TestWriteTree_StuckHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		unread, stdin := io.Pipe()
		client := NewClient(stdin, out, func() error { return errors.Join(in.Close(), unread.Close()) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := client.WriteTree(ctx, &counted{first: "x", files: 10}, dray.WriteTreeOptions{})
		if !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second+writeStopTimeout {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
	})
}
