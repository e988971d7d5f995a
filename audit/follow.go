package audit

import (
	"context"
	"sync"

	"github.com/dray-dev/dray"
)

// followAtOnce bounds the events that one query of Follow examines.
const followAtOnce = 1000

// Follower receives the calls of Follow. An error of one of its methods ends Follow.
type Follower interface {
	// Followed receives a call that has ended or, if asked for, begun. Seq is the number of the event
	// that ended or began it.
	Followed(seq int64, rec dray.Record) error
	// Waiting is called before Follow blocks.
	Waiting() error
}

// LastSeq returns the number of the last event, 0 if there is none.
func (s *Store) LastSeq(ctx context.Context) (seq int64, err error) {
	if err := s.read.QueryRowContext(ctx, lastSeq).Scan(&seq); err != nil {
		return 0, unavailableError(s.path, "read the audit log", err)
	}
	return seq, nil
}

// FollowQuery selects the calls of Follow. It ignores Sort, Limit and Cursor.
type FollowQuery struct {
	Query
	// After is the number of the event after which calls are followed.
	After int64
	// Begun also selects calls when they begin, unless they have ended since.
	Begun bool
}

// Follow passes on each call that a query selects and that an event after q.After ended, once and
// in the order of these events, complete. It blocks for more until ctx ends. A call whose row
// cannot be read, or that retention removed, is left out.
func (s *Store) Follow(ctx context.Context, q FollowQuery, to Follower) error {
	after := q.After
	for {
		committed := s.writer.committed.wait() // before the query, so that nothing is missed
		found, next, err := s.eventsAfter(ctx, q, after)
		if err != nil {
			return err
		}
		for _, p := range found {
			rec, err := load(ctx, s.read, s.blobs, bySeq, p.minor)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				continue
			}
			if err := to.Followed(p.major, rec); err != nil {
				return err
			}
		}
		if next > after {
			after = next
			continue
		}
		if err := to.Waiting(); err != nil {
			return err
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// eventsAfter returns the seqs of the event and of the begin record of each call, and the last
// event that was examined.
func (s *Store) eventsAfter(ctx context.Context, q FollowQuery, after int64) (
	found []position, next int64, err error,
) {
	last, err := s.LastSeq(ctx)
	if err != nil {
		return nil, 0, err
	}
	next = min(last, after+followAtOnce)
	found, err = selectAll(ctx, s.read, q.events(after, next), (*position).columns)
	if err != nil {
		return nil, 0, unavailableError(s.path, "follow the audit log", err)
	}
	return found, next, nil
}

// events returns the query for the calls that the events after one and up to another ended or, if
// asked for, began.
func (q FollowQuery) events(after, last int64) selectQuery {
	about := "i.ended_seq = e.seq"
	if q.Begun {
		about = "(i.ended_seq = e.seq OR i.seq = e.seq AND i.ended_seq IS NULL)"
	}
	where := q.minDuration(q.timeRange(whereClause{})).and("e.seq > ? AND e.seq <= ?", after, last)
	for _, f := range q.filters() {
		where = where.and(f.sql, f.args...)
	}
	return selectQuery{
		sql: "SELECT e.seq, i.seq FROM events e CROSS JOIN invocations i ON i.id = e.invocation AND " +
			about + " LEFT JOIN events b ON b.seq = i.seq" + where.where() + " ORDER BY e.seq",
		args: where.args,
	}
}

// broadcast wakes everybody who waits. Without anybody it costs nothing.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next send closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
