package main

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fingerprint describes files so that it differs when one of them has changed: by inode, size and
// times.
type fingerprint struct {
	text   []byte
	newest int64 // the latest change, in nanoseconds
}

func newFingerprint() *fingerprint { return &fingerprint{text: make([]byte, 0, 2<<10)} }

// add adds a file. One that does not exist adds nothing.
func (f *fingerprint) add(path string) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return
	}
	f.newest = max(f.newest, st.Ctim.Nano())
	f.text = append(f.text, path...)
	//nolint:gosec // any number does that differs
	for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
		f.text = append(strconv.AppendInt(append(f.text, ' '), n, 36), ';')
	}
}

// settleTime is more than the granularity of file times. A file that changed within it can change
// again without a difference in its times.
const settleTime = 100 * time.Millisecond

// settled reports whether a later change of the files will make a difference.
func (f *fingerprint) settled() bool { return time.Now().UnixNano()-f.newest > int64(settleTime) }

// dirNames caches the names in one directory until it changes.
type dirNames struct {
	mu    sync.Mutex
	stamp string
	names []string
}

// maxNames bounds the number of names that are read of a directory.
const maxNames = 1000

// list returns the names in dir; none if it cannot be read.
func (d *dirNames) list(dir string) []string {
	f := newFingerprint()
	f.add(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stamp != "" && d.stamp == string(f.text) {
		return d.names
	}
	d.stamp, d.names = "", nil
	file, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	d.names, _ = file.Readdirnames(maxNames)
	if f.settled() {
		d.stamp = string(f.text)
	}
	return d.names
}
