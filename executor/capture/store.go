package capture

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// Options are the parameters of a Store.
type Options struct {
	// Dir is the directory. NewStore creates it with mode 0700.
	Dir string
	// Limit is the maximum number of captured bytes of each stream. SummaryBytes is the size of the
	// head, and of the tail, in a Summary.
	Limit        int64
	SummaryBytes int
	// MaxDiskBytes is the maximum size of all captures together; zero is unlimited.
	MaxDiskBytes int64
	// MaxAge is how long a capture is retained after its last byte; zero is for ever.
	MaxAge time.Duration
	// OnRemoved is called, possibly concurrently, when retention removed files or failed; nil for
	// none.
	OnRemoved func(Removed)
}

// Removed describes what one sweep removed.
type Removed struct {
	Files int
	Bytes int64
	// Err is the error of a file that could not be removed.
	Err error
}

// Store is a directory of captures. It is safe for concurrent use.
type Store struct {
	opts Options

	mu            sync.Mutex
	live          map[string]*Capture // of running calls, by file name
	liveBytes     int64               // size of the files of running calls
	endedBytes    int64               // size of the files of ended calls
	releasedBytes int64               // total of what moved from the first to the second
	evicted       Removed             // that was not reported yet

	removing sync.Mutex // held while files are removed
	oldest   []file     // to remove next, the oldest first

	stop    chan struct{}
	janitor sync.WaitGroup
}

// NewStore opens a directory, reads the sizes of the files in it, and starts the removal of old
// ones. Close must be called.
func NewStore(opts Options) (*Store, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of captures: %w", err)
	}
	s := &Store{opts: opts, live: map[string]*Capture{}, stop: make(chan struct{})}
	if err := s.rescan(); err != nil {
		return nil, err
	}
	if opts.MaxAge > 0 {
		s.janitor.Go(s.runJanitor)
	}
	return s, nil
}

// Close stops the removal of old captures and waits for it. Open captures can still be used.
func (s *Store) Close() {
	close(s.stop)
	s.janitor.Wait()
}

// The versions of a stream in file names.
const raw, rewritten = "", ".rewritten"

// fileName returns the file name of a stream. Retention recognizes files by their extension.
func fileName(id, version string, stream dray.Stream) string {
	return filepath.Base(id) + version + "." + stream.String()
}

// Open returns the captured bytes of a stream, which may grow while the call runs. It returns
// fs.ErrNotExist for an ended call whose text fits in its summary, and for a removed capture.
func (s *Store) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(fileName(id, raw, stream))
}

// OpenRewritten is Open for the rewritten stream. There may be none if no path was rewritten.
func (s *Store) OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(fileName(id, rewritten, stream))
}

// OpenAuto returns the rewritten stream if there is one, else the raw one.
func (s *Store) OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	r, err := s.OpenRewritten(id, stream)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Open(id, stream)
	}
	return r, err
}

func (s *Store) open(name string) (io.ReadSeekCloser, error) {
	s.mu.Lock()
	running := s.live[name]
	s.mu.Unlock()
	if running != nil {
		return running.Open(), nil
	}
	f, err := os.Open(filepath.Join(s.opts.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("open a capture: %w", err)
	}
	return f, nil
}

// New starts the capture of a stream. Retention ignores its file until Release.
func (s *Store) New(id string, stream dray.Stream) *Capture {
	return s.begin(id, fileName(id, raw, stream))
}

// NewRewritten starts the capture of the rewritten stream, in addition to the raw one.
func (s *Store) NewRewritten(id string, stream dray.Stream) *Capture {
	return s.begin(id, fileName(id, rewritten, stream))
}

func (s *Store) begin(id, name string) *Capture {
	tail := ring{size: s.opts.SummaryBytes}
	c := &Capture{owner: s, id: id, name: name, sum: sha256.New(), tail: tail}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[c.name] = c
	return c
}

// reserve reserves disk space for a running call. It removes captures of ended calls if necessary.
func (s *Store) reserve(n int64) error {
	s.mu.Lock()
	if s.opts.MaxDiskBytes > 0 && s.liveBytes+n > s.opts.MaxDiskBytes {
		s.mu.Unlock()
		return dray.Errorf(dray.CodeLimitExceeded,
			"the running calls have more output than all captures together may have "+
				"(limits.captures_disk, %d bytes)",
			s.opts.MaxDiskBytes).WithHint("run fewer calls at a time, reduce their output, or raise " +
			"limits.captures_disk")
	}
	s.liveBytes += n
	s.mu.Unlock()
	if err := s.makeRoom(); err != nil {
		s.unreserve(n)
		return dray.Errorf(dray.CodeLimitExceeded,
			"free space for a capture (limits.captures_disk): %w", err).
			WithHint("remove the oldest files of the directory captures in the state directory")
	}
	return nil
}

// unreserve returns space that was not used.
func (s *Store) unreserve(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liveBytes -= n
}

// release makes a capture one of an ended call. It reports what was removed for space: once per
// call, not once per write.
func (s *Store) release(c *Capture) {
	s.mu.Lock()
	delete(s.live, c.name)
	s.liveBytes -= c.size
	s.endedBytes += c.size
	s.releasedBytes += c.size
	evicted := s.evicted
	s.evicted = Removed{}
	s.mu.Unlock()
	s.report(evicted)
}

// overLimit reports whether the files are too large and some can be removed.
func (s *Store) overLimit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.MaxDiskBytes > 0 && s.endedBytes > 0 &&
		s.liveBytes+s.endedBytes > s.opts.MaxDiskBytes
}

func (s *Store) isLive(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[name] != nil
}

// report calls OnRemoved unless there is nothing to report.
func (s *Store) report(r Removed) {
	if s.opts.OnRemoved != nil && r != (Removed{}) {
		s.opts.OnRemoved(r)
	}
}

const (
	// maxOldest is the number of files that rescan keeps in memory: the oldest.
	maxOldest = 4096
	// batch is the number of directory entries in one read.
	batch = 1024
	// The janitor sweeps sixteen times per MaxAge, within these limits.
	minInterval, maxInterval = time.Second, time.Hour
)

// file is the capture of an ended call.
type file struct {
	name    string
	size    int64
	changed time.Time
}

// byAge orders the oldest first.
func byAge(a, b file) int {
	return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.name, b.name))
}

// runJanitor sweeps periodically until Close.
func (s *Store) runJanitor() {
	interval := min(max(s.opts.MaxAge/16, minInterval), maxInterval)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.sweep()
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

// sweep removes old captures. It reports a panic, and the next sweep tries again (EX-18).
func (s *Store) sweep() {
	defer func() {
		if v := recover(); v != nil {
			s.report(Removed{Err: fmt.Errorf("internal error: %v\n%s", v, debug.Stack())})
		}
	}()
	s.report(s.RemoveBefore(time.Now().Add(-s.opts.MaxAge)))
}

// RemoveBefore removes the captures of ended calls whose last write is before a time.
func (s *Store) RemoveBefore(before time.Time) (done Removed) {
	s.removing.Lock()
	defer s.removing.Unlock()
	s.oldest = nil // it may be outdated or incomplete
	for removed := true; removed; {
		select {
		case <-s.stop:
			return done
		default:
			removed, done.Err = s.removeOldest(&done, func(f file) bool { return f.changed.Before(before) })
		}
	}
	return done
}

// makeRoom removes captures of ended calls, the oldest first, until the limit holds.
func (s *Store) makeRoom() error {
	if !s.overLimit() {
		return nil
	}
	s.removing.Lock()
	defer s.removing.Unlock()
	var done Removed
	for s.overLimit() && done.Err == nil {
		_, done.Err = s.removeOldest(&done, func(file) bool { return true })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted.Files += done.Files
	s.evicted.Bytes += done.Bytes
	return done.Err
}

// removeOldest removes the oldest file if remove returns true for it. It calls rescan if it knows
// no files.
func (s *Store) removeOldest(done *Removed, remove func(file) bool) (removed bool, err error) {
	if len(s.oldest) == 0 {
		if err := s.rescan(); err != nil {
			return false, err
		}
	}
	if len(s.oldest) == 0 || !remove(s.oldest[0]) {
		return false, nil
	}
	f := s.oldest[0]
	s.oldest = s.oldest[1:]
	err = os.Remove(filepath.Join(s.opts.Dir, f.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove a capture: %w", err)
	}
	s.mu.Lock()
	s.endedBytes = max(0, s.endedBytes-f.size)
	s.mu.Unlock()
	done.Files++
	done.Bytes += f.size
	return true, nil
}

// rescan finds the oldest captures of ended calls, and corrects their total size unless a call
// ended meanwhile.
func (s *Store) rescan() error {
	s.mu.Lock()
	ended := s.releasedBytes
	s.mu.Unlock()
	found, total, err := s.scan()
	if err != nil {
		return fmt.Errorf("read the directory of captures: %w", err)
	}
	s.oldest = found
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.releasedBytes == ended {
		s.endedBytes = total
	}
	return nil
}

// scan returns the oldest captures of ended calls, and the total size of all of them. It keeps a
// bounded number of names in memory.
func (s *Store) scan() (oldest []file, total int64, err error) {
	dir, err := os.Open(s.opts.Dir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = dir.Close() }()
	for {
		entries, err := dir.ReadDir(batch)
		for _, e := range entries {
			if f, ok := s.parseEntry(e); ok {
				oldest = append(oldest, f)
				total += f.size
			}
		}
		if len(oldest) > 2*maxOldest || err != nil {
			slices.SortFunc(oldest, byAge)
			oldest = oldest[:min(len(oldest), maxOldest)]
		}
		switch {
		case errors.Is(err, io.EOF):
			return oldest, total, nil
		case err != nil:
			return nil, 0, err
		}
	}
}

// parseEntry returns the capture of an ended call, or of a daemon that died.
func (s *Store) parseEntry(e fs.DirEntry) (file, bool) {
	name := e.Name()
	if ext := filepath.Ext(name); ext != "."+dray.Stdout.String() && ext != "."+dray.Stderr.String() ||
		s.isLive(name) {
		return file{}, false
	}
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() {
		return file{}, false
	}
	return file{name: name, size: info.Size(), changed: info.ModTime()}, true
}
