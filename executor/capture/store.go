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

// Options say where captures lie and what bounds them.
type Options struct {
	// Dir is the folder; it is made if need be, 0700.
	Dir string
	// Limit is how many bytes of each stream are kept; View how many of its head, and as many of its
	// tail, a Summary shows.
	Limit        int64
	SummaryBytes int
	// MaxDiskBytes is how many bytes all captures together may take; zero is any number.
	MaxDiskBytes int64
	// MaxAge is how long a capture stays after its last byte; zero is for ever.
	MaxAge time.Duration
	// OnRemoved hears what retention did, from several goroutines; nil is silence.
	OnRemoved func(Removed)
}

// Removed is what one round of retention did.
type Removed struct {
	Files int
	Bytes int64
	// Err says what could not be removed.
	Err error
}

// Store is a folder of captures. Its methods may be used from several goroutines.
type Store struct {
	opts Options

	mu            sync.Mutex
	live          map[string]*Capture // by the name of their file: those of calls that run
	liveBytes     int64               // what the files of running calls take
	endedBytes    int64               // what the files of ended calls take
	releasedBytes int64               // what was moved from the one to the other, ever
	evicted       Removed             // what was removed to make room, and is not reported yet

	removing sync.Mutex // held by whoever removes
	oldest   []file     // what to remove next, the oldest first

	stop    chan struct{}
	janitor sync.WaitGroup
}

// NewStore opens a folder, counts what an earlier daemon left in it, and begins to remove what is
// too old. Close ends that.
func NewStore(opts Options) (*Store, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for captures: %w", err)
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

// Close ends the removal of what is too old. Captures that are not closed by then stay usable.
func (s *Store) Close() {
	close(s.stop)
	s.janitor.Wait()
}

func fileName(id string, stream dray.Stream) string {
	return filepath.Base(id) + "." +
		stream.String()
}

// rewrittenName is the file of a stream whose paths were rewritten. Retention knows all files by
// their ends alone.
func rewrittenName(id string, stream dray.Stream) string {
	return filepath.Base(id) + ".rewritten." + stream.String()
}

// Open gives the kept bytes of a stream; those of a call that runs may grow while they are read. A
// stream of an ended call that printed nothing, or no more than its Summary's text shows whole, has
// no file and is fs.ErrNotExist, as is one that retention removed.
func (s *Store) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(fileName(id, stream))
}

// OpenRewritten gives, as Open does, the kept bytes of a stream whose paths were rewritten. Where
// no path was, there may be none: the bytes are those of the stream itself.
func (s *Store) OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(rewrittenName(id, stream))
}

// OpenAuto gives the stream as it was shown while the call ran: with its paths rewritten, or else
// as it was printed.
func (s *Store) OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	kept, err := s.OpenRewritten(id, stream)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Open(id, stream)
	}
	return kept, err
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
		return nil, fmt.Errorf("opening a capture: %w", err)
	}
	return f, nil
}

// New begins the capture of a stream. Its file is safe from retention until its Release.
func (s *Store) New(id string, stream dray.Stream) *Capture {
	return s.begin(id, fileName(id, stream))
}

// NewRewritten begins the capture of a stream whose paths are rewritten, beside that of the stream
// itself.
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

// reserve takes room on the disk for a running call. Captures of ended calls make way for it; those
// of running calls do not.
func (s *Store) reserve(n int64) error {
	s.mu.Lock()
	if s.opts.MaxDiskBytes > 0 && s.liveBytes+n > s.opts.MaxDiskBytes {
		s.mu.Unlock()
		return dray.Errorf(dray.CodeLimitExceeded,
			"the calls that run have printed more than may be kept of all calls together (limits.captures_disk, %d bytes)",
			s.opts.MaxDiskBytes).WithHint("run fewer of them at a time, have them print less, or raise limits.captures_disk")
	}
	s.liveBytes += n
	s.mu.Unlock()
	if err := s.makeRoom(); err != nil {
		s.unreserve(n)
		return dray.Errorf(dray.CodeLimitExceeded,
			"making room for what the tool prints (limits.captures_disk): %w", err).
			WithHint("remove the oldest files of the folder captures in the state folder")
	}
	return nil
}

// unreserve gives room back that was not used.
func (s *Store) unreserve(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liveBytes -= n
}

// release makes a capture one of an ended call. What went to make room is reported here: at most
// once for each call, not for each write.
func (s *Store) release(c *Capture) {
	s.mu.Lock()
	delete(s.live, c.name)
	s.liveBytes -= c.size
	s.endedBytes += c.size
	s.releasedBytes += c.size
	made := s.evicted
	s.evicted = Removed{}
	s.mu.Unlock()
	s.report(made)
}

// overLimit says whether the files take more room than they may.
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

// report tells what was done, if anything was.
func (s *Store) report(r Removed) {
	if s.opts.OnRemoved != nil && r != (Removed{}) {
		s.opts.OnRemoved(r)
	}
}
