package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dray-dev/dray"
)

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
	s.report(s.removeOld(time.Now().Add(-s.opts.MaxAge)))
}

// removeOld removes the captures whose last write is before a time.
func (s *Store) removeOld(before time.Time) (done Removed) {
	s.removing.Lock()
	defer s.removing.Unlock()
	s.oldest = nil // it may be outdated or incomplete
	for removed := true; removed && !s.stopped(); {
		removed, done.Err = s.removeOldest(&done, func(f file) bool { return f.changed.Before(before) })
	}
	return done
}

func (s *Store) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
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
