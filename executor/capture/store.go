package capture

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

func fileName(id string, stream dray.Stream) string {
	return filepath.Base(id) + "." + stream.String()
}

// rewrittenName returns the file name of a rewritten stream. Retention recognizes files by their
// extension.
func rewrittenName(id string, stream dray.Stream) string {
	return filepath.Base(id) + ".rewritten." + stream.String()
}

// Open returns the captured bytes of a stream, which may grow while the call runs. It returns
// fs.ErrNotExist for an ended call whose text fits in its summary, and for a removed capture.
func (s *Store) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(fileName(id, stream))
}

// OpenRewritten is Open for the rewritten stream. There may be none if no path was rewritten.
func (s *Store) OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(rewrittenName(id, stream))
}

// OpenAuto returns the rewritten stream if there is one, else the raw one.
func (s *Store) OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	rewritten, err := s.OpenRewritten(id, stream)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Open(id, stream)
	}
	return rewritten, err
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
	return s.begin(id, fileName(id, stream))
}

// NewRewritten starts the capture of the rewritten stream, in addition to the raw one.
func (s *Store) NewRewritten(id string, stream dray.Stream) *Capture {
	return s.begin(id, rewrittenName(id, stream))
}

func (s *Store) begin(id, name string) *Capture {
	c := &Capture{
		owner: s, id: id, name: name, sum: sha256.New(),
		tail: ring{size: s.opts.SummaryBytes},
	}
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
			"the running calls have more output than all captures together may have (limits.captures_disk, %d bytes)",
			s.opts.MaxDiskBytes).WithHint("run fewer calls at a time, reduce their output, or raise limits.captures_disk")
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
