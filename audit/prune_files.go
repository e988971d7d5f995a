package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usedFor is how long a file is kept after its last use: the event that refers to it may not be
// committed yet. It is longer than a call waits for that.
const usedFor = time.Minute

const isFileUsed = `SELECT EXISTS (SELECT 1 FROM invocations WHERE input_sha256 = ?1)
	OR EXISTS (SELECT 1 FROM invocations WHERE output_sha256 = ?1)
	OR EXISTS (SELECT 1 FROM invocations WHERE lists_sha256 = ?1)`

// removeUnusedFiles removes files of inputs, outputs and lists that no call refers to. While a
// backup copies them it removes none; the next time it will.
func (s *Store) removeUnusedFiles(ctx context.Context, report *PruneReport) error {
	dir, err := os.Open(s.blobs.dir)
	if err != nil {
		return fmt.Errorf("open the captures directory: %w", err)
	}
	defer dir.Close()
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock the captures directory: %w", err)
	}
	usedSince := time.Now().Add(-usedFor)
	for {
		entries, err := dir.ReadDir(1000)
		for _, e := range entries {
			if !isBlobName(e.Name()) {
				continue
			}
			if err := s.removeUnusedFile(ctx, e.Name(), usedSince, report); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the captures directory: %w", err)
		}
	}
}

func (s *Store) removeUnusedFile(
	ctx context.Context, name string, usedSince time.Time, report *PruneReport,
) error {
	var used bool
	if err := s.read.QueryRowContext(ctx, isFileUsed, name).Scan(&used); err != nil {
		return fmt.Errorf("find the calls of a capture: %w", err)
	}
	if used {
		return nil
	}
	n, err := s.blobs.removeUnused(name, usedSince)
	if err != nil {
		return err
	}
	if n >= 0 {
		report.Files++
		report.FileBytes += n
	}
	return nil
}

// removeUnused removes a file that was not used since a time, and returns its size, or -1 if it was
// used.
func (f *blobStore) removeUnused(name string, usedSince time.Time) (int64, error) {
	f.using.Lock()
	defer f.using.Unlock()
	path := filepath.Join(f.dir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(usedSince) {
		return -1, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return -1, fmt.Errorf("remove a capture: %w", err)
	}
	return info.Size(), nil
}

// isBlobName reports whether a name in the captures directory is that of an input, output or list.
func isBlobName(name string) bool {
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == 32 && name == strings.ToLower(name)
}
