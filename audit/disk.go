package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// Defaults of [DiskMarks], in bytes.
const (
	DefaultDiskLow     = 1 << 30
	DefaultDiskReserve = 64 << 20
)

// DiskMarks are amounts of free space, in bytes. On a small disk each is a part of the disk.
type DiskMarks struct {
	// Low is the space below which is warned, at most a tenth of the disk. 0 means DefaultDiskLow.
	Low int64
	// Reserve is the space below which new calls are refused, so that the end records of those that
	// run can be committed; at most a twentieth of the disk. 0 means DefaultDiskReserve.
	Reserve int64
}

// Space is the free space of a disk, with the marks that apply to it, in bytes.
type Space struct {
	Free, Low, Reserve int64
}

// DiskLevel is how full a disk is.
type DiskLevel string

// The levels of a disk.
const (
	DiskOK   DiskLevel = "ok"
	DiskLow  DiskLevel = "low"
	DiskFull DiskLevel = "full" // new calls are refused
)

// Level compares the free space with the marks.
func (s Space) Level() DiskLevel {
	switch {
	case s.Free < s.Reserve:
		return DiskFull
	case s.Free < s.Low:
		return DiskLow
	default:
		return DiskOK
	}
}

// Of returns the free space of the disk of a directory.
func (m DiskMarks) Of(dir string) (Space, error) {
	free, total, err := diskSpace(dir)
	if err != nil {
		return Space{}, err
	}
	return Space{
		Free:    free,
		Low:     min(cmp.Or(m.Low, DefaultDiskLow), total/10),
		Reserve: min(cmp.Or(m.Reserve, DefaultDiskReserve), total/20),
	}, nil
}

// diskSpace returns the free space of the disk of a directory for this user, and the size of the
// disk, in bytes.
func diskSpace(dir string) (free, total int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("find the free space of %s: %w", dir, err)
	}
	unit := cmp.Or(fs.Frsize, fs.Bsize)
	//nolint:gosec // the size of a disk is below 2^63
	return int64(fs.Bavail) * unit, int64(fs.Blocks) * unit, nil
}

// DiskChanged is the body of the kind disk (AU-09).
type DiskChanged struct {
	Level   DiskLevel `json:"level" doc:"ok, low or full; at full new calls are refused"`
	Free    int64     `json:"free_bytes" doc:"free space of the disk"`
	Reserve int64     `json:"reserve_bytes" doc:"below it, the level is full"`
}

// Kind implements [Body].
func (*DiskChanged) Kind() string { return "disk" }

// Summary implements [Body].
func (b *DiskChanged) Summary() string {
	return fmt.Sprintf("%s: %d MiB are free", b.Level, b.Free>>20)
}

// disk watches the free space of the disk of the log. A file of half the reserve occupies space
// that is released when a commit finds no other, because other programs can fill the disk below
// every mark.
type disk struct {
	dir     string
	ballast string
	marks   DiskMarks
	log     *zap.Logger
	post    func(Body)

	mu       sync.Mutex
	level    DiskLevel // the last one that was seen
	occupied bool      // the ballast has its size
}

// newDisk returns the disk of a database. post records a change of the level and must not block.
func newDisk(path string, marks DiskMarks, log *zap.Logger, post func(Body)) *disk {
	return &disk{
		dir: filepath.Dir(path), ballast: path + ".reserve", marks: marks, log: log, post: post,
		level: DiskOK,
	}
}

// check fails if the disk is full. It warns when the level changes. If the free space is unknown it
// refuses nothing: a commit that finds no space fails itself.
func (d *disk) check() error {
	space, err := d.marks.Of(d.dir)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	level := space.Level()
	d.observe(level, space)
	if level != DiskFull {
		return nil
	}
	return dray.Errorf(dray.CodeAuditUnavailable,
		"the disk of %s is nearly full: %d KiB are free, the last %d KiB are reserved for calls that run",
		d.dir, space.Free>>10, space.Reserve>>10).
		WithHint("free space on that disk, then repeat the call; nothing ran")
}

// observe records a change of the level, and occupies the reserve while there is space.
func (d *disk) observe(level DiskLevel, space Space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if level == DiskOK && !d.occupied {
		d.occupy(space.Reserve / 2)
	}
	if level == d.level {
		return
	}
	d.level = level
	fields := []zap.Field{
		zap.String("level", string(level)), zap.String("dir", d.dir), zap.Int64("free", space.Free),
	}
	if level == DiskOK {
		d.log.Info("disk has space again", fields...)
	} else {
		d.log.Warn("disk nearly full", fields...)
	}
	d.post(&DiskChanged{Level: level, Free: space.Free, Reserve: space.Reserve})
}

// occupy gives the ballast its size. On a file system that cannot do that only the mark reserves
// space.
func (d *disk) occupy(size int64) {
	d.occupied = true // no second attempt before the ballast is released
	f, err := openPrivate(d.ballast)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, max(size, 1)), f.Close())
	}
	if err != nil {
		d.log.Info("no space is reserved for the audit log", zap.Error(err))
	}
}

// release frees the space of the ballast, and reports whether there was any.
func (d *disk) release() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(d.ballast)
	if err != nil || info.Size() == 0 {
		return false
	}
	if err := os.Truncate(d.ballast, 0); err != nil {
		d.log.Error("reserved space not released", zap.Error(err))
		return false
	}
	d.occupied = false
	d.log.Warn("disk full: the space reserved for the audit log is used")
	return true
}

// Space returns the free space of the disk of the log.
func (s *Store) Space() (Space, error) { return s.disk.marks.Of(s.disk.dir) }

// Warnings returns what threatens the log while calls still run: a disk that is nearly full, and
// with [Options.Degrade] that the log cannot be written.
func (s *Store) Warnings(ctx context.Context) []*dray.Error {
	if s.degrade {
		if err := s.writable(ctx); err != nil {
			return []*dray.Error{dray.AsError(err)}
		}
	}
	space, err := s.Space()
	if err != nil || space.Level() != DiskLow {
		return nil
	}
	return []*dray.Error{dray.Errorf(dray.CodeDiskFull,
		"the disk of %s is nearly full: %d MiB are free", s.disk.dir, space.Free>>20).
		WithHint("free space on that disk: below %d MiB new calls are refused", space.Reserve>>20)}
}
