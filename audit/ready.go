package audit

import (
	"context"
	"time"
)

// readyTimeout is how long Ready waits for a database that is busy.
const readyTimeout = time.Second

// Ready says why a begin could not be committed now: the database is locked by another program, or the last attempt to write has failed. It writes
// nothing.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.writer.writeError(); err != nil {
		return unavailableError(s.path, "write to the trail", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tx, err := s.write.BeginTx(ctx, nil) // it takes the lock that a commit needs
	if err == nil {
		err = tx.Rollback()
	}
	if err != nil {
		return unavailableError(s.path, "write to the trail", err)
	}
	return nil
}

// writeError says why nothing is written: the database does not take it, or the writer is closed.
func (w *writer) writeError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	return w.lastErr
}
