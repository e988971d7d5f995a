package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditExport(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write calls as JSON Lines or CSV",
		Long: `export writes calls to stdout, newest first and complete, one in a line. In CSV a cell
that a spreadsheet would take for a formula begins with a quote ('). If the export
cannot be completed, the exit code is 1.`,
		Example: "  dray audit export --since 30d >calls.jsonl\n" +
			"  dray audit export --format csv --plan nightly >calls.csv",
		Args: noArgs,
	}
	filters := a.filterFlags(cmd, append(
		[]filterFlag{{"format", "format", "`format`: jsonl (default) or csv", nil}}, callFilters...))
	a.utcFlag(cmd)
	cmd.Flags().Lookup("utc").Usage = "read times in UTC (default: the local time zone)"
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		query, err := filters()
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runAuditExport(ctx, c, query) })
	})
	return cmd
}

func (a *app) runAuditExport(ctx context.Context, c *client.Client, query url.Values) error {
	calls, err := c.AuditExport(ctx, query)
	if err != nil {
		return err
	}
	defer calls.Close()
	in := &watchedReader{r: calls}
	if isTerminal(a.out) {
		err = copyEscaped(a.out, in)
	} else {
		in.progress = newProgress(a.err, progressDelay)
		_, err = io.Copy(a.out, in)
		in.progress.clear()
	}
	if in.err != nil {
		return dray.Errorf(dray.CodeInternal, "the export is not complete: %w", in.err).
			WithHint("see daemon.log in the state directory; repeat the export")
	}
	return outputError(err)
}

// watchedReader records why r could not be read, as a copy does not tell it from a failed write. It
// shows how much was read, unless progress is nil.
type watchedReader struct {
	r           io.Reader
	err         error
	progress    *progress
	lines, read int64
	next        time.Time // of the next message
}

// exportInterval is the time between two messages about an export.
const exportInterval = 200 * time.Millisecond

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = fmt.Errorf("read the response: %w", err)
	}
	w.lines += int64(bytes.Count(p[:n], []byte("\n")))
	w.read += int64(n)
	if now := time.Now(); w.progress != nil && now.After(w.next) {
		w.next = now.Add(exportInterval)
		w.progress.note("export", fmt.Sprintf("%d lines, %.1f MB", w.lines, float64(w.read)/1e6))
	}
	return n, err
}
