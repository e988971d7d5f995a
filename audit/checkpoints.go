package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

const (
	// checkpointDelay is how long after an event a checkpoint covers it at the latest.
	checkpointDelay = 10 * time.Second
	// retainedCheckpoints is the number of checkpoints that are stored.
	retainedCheckpoints = 32

	checkpointSuffix = ".note"
)

// checkpointer signs checkpoints of what the writer has committed, and stores the last ones in a
// directory outside of the database.
type checkpointer struct {
	writer *writer
	signer *proof.Signer
	dir    string
	log    *zap.Logger
	stop   context.CancelFunc // ends the goroutine
	done   chan struct{}      // closed when it has ended

	mu   sync.Mutex
	last int64 // the size of the last stored checkpoint
}

// start stores a checkpoint, and starts the goroutine that stores one at the latest checkpointDelay
// after an event; close ends it.
func (c *checkpointer) start(ctx context.Context, w *writer) {
	c.writer = w
	c.store()
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go c.run(ctx)
}

func (c *checkpointer) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.writer.grown:
		}
		timer := time.NewTimer(checkpointDelay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			c.store()
		}
	}
}

// store stores a checkpoint or logs why not.
func (c *checkpointer) store() {
	if _, err := c.checkpoint(); err != nil {
		c.log.Warn("checkpoint not stored", zap.Error(err))
	}
}

// close ends the goroutine and stores a last checkpoint. The writer must be closed before.
func (c *checkpointer) close() error {
	c.stop()
	<-c.done
	_, err := c.checkpoint()
	return err
}

// checkpoint returns a signed checkpoint of all committed events and stores it. Signing the same
// events again gives the same bytes.
func (c *checkpointer) checkpoint() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edge := c.writer.committedEdge()
	signed, err := c.signer.Sign(edge.Size(), edge.Root())
	if err != nil || edge.Size() == c.last {
		return signed, err
	}
	if err := makePrivateDir(c.dir); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%020d%s", edge.Size(), checkpointSuffix)
	if err := writePrivate(filepath.Join(c.dir, name), signed); err != nil {
		return nil, err
	}
	c.last = edge.Size()
	return signed, c.removeOld()
}

func (c *checkpointer) removeOld() error {
	all, err := storedCheckpoints(c.dir)
	if err != nil {
		return err
	}
	for _, path := range all[:max(0, len(all)-retainedCheckpoints)] {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an old checkpoint: %w", err)
		}
	}
	return nil
}

// storedCheckpoints returns the paths of the stored checkpoints by size.
func storedCheckpoints(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the checkpoints: %w", err)
	}
	var all []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), checkpointSuffix) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(all)
	return all, nil
}

// maxCheckpointBytes bounds the part of a checkpoint file that is read.
const maxCheckpointBytes = 64 << 10

// readCheckpoint reads a file with a checkpoint.
func readCheckpoint(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCheckpointBytes))
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	return b, nil
}

// checkLastCheckpoint fails unless the log extends the last stored checkpoint. It returns the size
// of that checkpoint.
func checkLastCheckpoint(ctx context.Context, db *sql.DB, dir string, key proof.Verifier,
	edge proof.Edge,
) (size int64, err error) {
	all, err := storedCheckpoints(dir)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	path := all[len(all)-1]
	refuse := func(format string, args ...any) error {
		return dray.Errorf(dray.CodeAuditUnavailable, format, args...).
			WithHint("run `dray audit verify` to see what differs, and restore the log; to go on with " +
				"what is there, run `dray audit checkpoint --new-key`")
	}
	signed, err := readCheckpoint(path)
	if err != nil {
		return 0, err
	}
	c, err := key.Open(signed)
	if err != nil {
		return 0, refuse("%s: %w", path, err)
	}
	if c.Size > edge.Size() {
		return 0, refuse("the log has %d events, and had %d at the checkpoint %s: it was cut or "+
			"replaced by an older copy", edge.Size(), c.Size, path)
	}
	root, err := tlog.TreeHash(c.Size, treeReader{ctx, db})
	if err != nil {
		return 0, refuse("%w", err)
	}
	if root != c.Root {
		return 0, refuse("the first %d events are not those of the checkpoint %s: the log was changed",
			c.Size, path)
	}
	return c.Size, nil
}

// openProof opens what proves the log, and starts the checkpointer. The writer must not run yet.
func (s *Store) openProof(ctx context.Context) (proof.Edge, error) {
	if err := storeMissingNodes(ctx, s.write); err != nil {
		return proof.Edge{}, err
	}
	var size int64
	if err := s.write.QueryRowContext(ctx, lastSeq).Scan(&size); err != nil {
		return proof.Edge{}, fmt.Errorf("find the last event: %w", err)
	}
	edge, err := readEdge(ctx, s.write, size)
	if err != nil {
		return edge, err
	}
	files := filesOf(s.path)
	signer, err := openKey(ctx, s.write, files)
	if err != nil {
		return edge, err
	}
	last, err := checkLastCheckpoint(ctx, s.write, files.checkpoints, signer.Verifier(), edge)
	s.checkpoints = &checkpointer{
		signer: signer, dir: files.checkpoints, log: s.log, last: last, done: make(chan struct{}),
	}
	return edge, err
}

// Checkpoint returns a signed checkpoint of all committed events, and stores it as the last one. It
// fails with audit_unavailable.
func (s *Store) Checkpoint(context.Context) ([]byte, error) {
	signed, err := s.checkpoints.checkpoint()
	if err != nil {
		return nil, unavailableError(s.path, "make a checkpoint", err)
	}
	return signed, nil
}

// Key returns the public key of the checkpoints.
func (s *Store) Key() proof.Verifier { return s.checkpoints.signer.Verifier() }
