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
	// Limit is how many bytes of each stream are kept; View how many of its head, and as many of its tail, a Summary shows.
	Limit int64
	View  int
	// Disk is how many bytes all captures together may take; zero is any number.
	Disk int64
	// Keep is how long a capture stays after its last byte; zero is for ever.
	Keep time.Duration
	// Report hears what retention did, from several goroutines; nil is silence.
	Report func(Removed)
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

	mu    sync.Mutex
	live  map[string]*Capture // by the name of their file: those of calls that run
	grown int64               // what the files of running calls take
	rest  int64               // what the files of ended calls take
	ended int64               // what was moved from the one to the other, ever
	made  Removed             // what was removed to make room, and is not reported yet

	removing sync.Mutex // held by whoever removes
	oldest   []file     // what to remove next, the oldest first

	stop    chan struct{}
	janitor sync.WaitGroup
}

// NewStore opens a folder, counts what an earlier daemon left in it, and begins to remove what is too old. Close ends that.
func NewStore(opts Options) (*Store, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for captures: %w", err)
	}
	s := &Store{opts: opts, live: map[string]*Capture{}, stop: make(chan struct{})}
	if err := s.look(); err != nil {
		return nil, err
	}
	if opts.Keep > 0 {
		s.janitor.Go(s.keepTidy)
	}
	return s, nil
}

// Close ends the removal of what is too old. Captures that are not closed by then stay usable.
func (s *Store) Close() {
	close(s.stop)
	s.janitor.Wait()
}

func fileName(id string, stream dray.Stream) string { return filepath.Base(id) + "." + stream.String() }

// rewrittenName is the file of a stream whose paths were rewritten. Retention knows all files by their ends alone.
func rewrittenName(id string, stream dray.Stream) string {
	return filepath.Base(id) + ".rewritten." + stream.String()
}

// Open gives the kept bytes of a stream; those of a call that runs may grow while they are read. A stream of an ended call that printed
// nothing, or no more than its Summary's text shows whole, has no file and is fs.ErrNotExist, as is one that retention removed.
func (s *Store) Open(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(fileName(id, stream))
}

// OpenRewritten gives, as Open does, the kept bytes of a stream whose paths were rewritten. Where no path was, there may be none: the bytes are
// those of the stream itself.
func (s *Store) OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
	return s.open(rewrittenName(id, stream))
}

// OpenShown gives the stream as it was shown while the call ran: with its paths rewritten, or else as it was printed.
func (s *Store) OpenShown(id string, stream dray.Stream) (io.ReadSeekCloser, error) {
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

// NewRewritten begins the capture of a stream whose paths are rewritten, beside that of the stream itself.
func (s *Store) NewRewritten(id string, stream dray.Stream) *Capture {
	return s.begin(id, rewrittenName(id, stream))
}

func (s *Store) begin(id, name string) *Capture {
	c := &Capture{store: s, id: id, name: name, sum: sha256.New(), tail: ring{size: s.opts.View}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[c.name] = c
	return c
}

// claim takes room on the disk for a running call. Captures of ended calls make way for it; those of running calls do not.
func (s *Store) claim(n int64) error {
	s.mu.Lock()
	if s.opts.Disk > 0 && s.grown+n > s.opts.Disk {
		s.mu.Unlock()
		return dray.Errorf(dray.CodeLimitExceeded, "the calls that run have printed more than may be kept of all calls together (limits.captures_disk, %d bytes)",
			s.opts.Disk).WithHint("run fewer of them at a time, have them print less, or raise limits.captures_disk")
	}
	s.grown += n
	s.mu.Unlock()
	if err := s.makeRoom(); err != nil {
		s.unclaim(n)
		return dray.Errorf(dray.CodeLimitExceeded, "making room for what the tool prints (limits.captures_disk): %w", err).
			WithHint("remove the oldest files of the folder captures in the state folder")
	}
	return nil
}

// unclaim gives room back that was not used.
func (s *Store) unclaim(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grown -= n
}

// release makes a capture one of an ended call. What went to make room is reported here: at most once for each call, not for each write.
func (s *Store) release(c *Capture) {
	s.mu.Lock()
	delete(s.live, c.name)
	s.grown -= c.size
	s.rest += c.size
	s.ended += c.size
	made := s.made
	s.made = Removed{}
	s.mu.Unlock()
	s.report(made)
}

// over says whether the files take more room than they may.
func (s *Store) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Disk > 0 && s.rest > 0 && s.grown+s.rest > s.opts.Disk
}

func (s *Store) isLive(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[name] != nil
}

// report tells what was done, if anything was.
func (s *Store) report(r Removed) {
	if s.opts.Report != nil && r != (Removed{}) {
		s.opts.Report(r)
	}
}
