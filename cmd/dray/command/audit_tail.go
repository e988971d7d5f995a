package command

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
)

// reconnectPause is the wait between two attempts to reach a daemon that has exited.
const reconnectPause = 300 * time.Millisecond

func newAuditTail(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the latest calls, and follow new ones",
		Long: `tail prints the latest calls, the newest last. With --follow it goes on and prints each
call when it begins and again when it ends, also after a restart of the daemon, until
it is interrupted. With --json it prints each call once, when it ends.`,
		Example: "  dray audit tail --follow\n  dray audit tail -f --status failed --json",
		Args:    noArgs,
	}
	filters := a.filterFlags(cmd, callFilters)
	limit := cmd.Flags().IntP("limit", "n", 10, "`number` of calls to begin with, 0 to 1000")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with calls as they begin and end")
	a.jsonFlag(cmd)
	cmd.Flags().Lookup("json").Usage = "print one JSON value for each call"
	a.utcFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		query, err := filters()
		switch {
		case err != nil:
			return err
		case *limit < 0 || *limit > audit.MaxLimit:
			return usagef("--limit %d is not between 0 and %d", *limit, audit.MaxLimit)
		}
		t := tail{
			app: a, query: query, begun: !a.json, printed: map[printedCall]bool{},
			table: a.table(callColumns...).leaveOut(spareCallColumns...),
		}
		return a.withClient(func(c *client.Client) error {
			if *follow {
				return t.follow(ctx, c, *limit)
			}
			t.begun = true
			return t.latest(ctx, c, *limit)
		})
	})
	return cmd
}

// tail prints calls line by line.
type tail struct {
	app   *app
	query url.Values
	table table
	// begun is set if calls are printed before they have ended.
	begun bool
	// printed are the calls that latest printed.
	printed map[printedCall]bool
}

// printedCall is a call that was printed while it ran, or when it had ended.
type printedCall struct {
	id    string
	ended bool
}

// latest prints the latest calls, the newest last.
func (t *tail) latest(ctx context.Context, c *client.Client, limit int) error {
	if limit == 0 {
		return nil
	}
	var calls []dray.Record
	out := &collectedPages{keep: func(rec dray.Record) {
		if t.begun || rec.EndedAt != nil {
			calls = append(calls, rec)
		}
	}}
	p := pages{list: client.Invocations, query: maps.Clone(t.query), left: limit}
	if err := printPages(ctx, c, p, out); err != nil {
		return err
	}
	for _, rec := range slices.Backward(calls) {
		t.printed[printedCall{rec.ID, rec.EndedAt != nil}] = true
		line, err := json.Marshal(rec)
		if err == nil {
			err = t.add(rec, line)
		}
		if err != nil {
			return err
		}
	}
	return t.write()
}

// collectedPages passes each call of the pages to keep.
type collectedPages struct{ keep func(dray.Record) }

func (p *collectedPages) page(page client.Page[dray.Record]) error {
	for _, rec := range page.Items {
		p.keep(rec)
	}
	return nil
}

func (*collectedPages) end(string) error { return nil }

// add adds a call to the table, or prints its line with --json.
func (t *tail) add(rec dray.Record, line []byte) error {
	if t.app.json {
		return t.app.printRaw(line)
	}
	t.table.add(t.app.callCells(rec)...)
	return nil
}

// write prints the calls that were added to the table.
func (t *tail) write() error {
	if t.app.json {
		return nil
	}
	return t.table.write(t.app.out)
}

// follow prints the latest calls and then each call that begins or ends. The stream begins before
// the latest calls are listed, so that none is missed in between.
func (t *tail) follow(ctx context.Context, c *client.Client, limit int) error {
	query := maps.Clone(t.query)
	if t.begun {
		query.Set("begun", "1")
	}
	stream, err := c.AuditFollow(ctx, query, 0)
	if err != nil {
		return err
	}
	if err := t.latest(ctx, c, limit); err != nil {
		return errors.Join(err, stream.Close())
	}
	for {
		err := t.read(stream)
		last := stream.Seq
		if closeErr := stream.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
		if stream, err = reconnect(ctx, c, query, last); err != nil {
			return err
		}
	}
}

// read prints the calls of a stream until the daemon ends it.
func (t *tail) read(stream *client.CallStream) error {
	for {
		rec, line, err := stream.Next()
		if err != nil {
			return nil //nolint:nilerr // the daemon has exited: it is asked again
		}
		if call := (printedCall{rec.ID, rec.EndedAt != nil}); t.printed[call] {
			delete(t.printed, call)
			continue
		}
		if err := t.add(rec, line); err != nil {
			return err
		}
		if err := t.write(); err != nil {
			return err
		}
	}
}

// reconnect waits for a daemon and follows the calls after an event. It starts no daemon.
func reconnect(ctx context.Context, c *client.Client, query url.Values, after int64) (
	*client.CallStream, error,
) {
	for {
		stream, err := c.AuditFollow(ctx, query, after)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			return stream, nil
		case dray.CodeOf(err) == dray.CodeInvalidRequest, dray.CodeOf(err) == dray.CodeDenied:
			return nil, err
		}
		timer := time.NewTimer(reconnectPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
