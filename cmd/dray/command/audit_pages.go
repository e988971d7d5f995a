package command

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
)

// pagedList completes a command that prints what of a list the values of its flags select.
type pagedList[T any] struct {
	flags []filterFlag
	list  client.List
	head  []string
	// spare are the columns that a narrow terminal does without, the first one first.
	spare []string
	// row adds the line of an item to a table.
	row func(*table, T)
}

func (l pagedList[T]) complete(a *app, cmd *cobra.Command) *cobra.Command {
	filters := a.filterFlags(cmd, l.flags)
	limit := cmd.Flags().Int("limit", 50, "maximum `number` of lines, 1 to 1000")
	all := cmd.Flags().Bool("all", false, "list everything, whatever the number")
	cursor := cmd.Flags().String("cursor", "", "continue after the given `next_cursor`")
	a.jsonFlag(cmd)
	a.utcFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		query, err := filters()
		switch {
		case err != nil:
			return err
		case *limit < 1 || *limit > audit.MaxLimit:
			return usagef("--limit %d is not between 1 and %d", *limit, audit.MaxLimit)
		case *cursor != "":
			query.Set("cursor", *cursor)
		}
		p := pages{list: l.list, query: query, left: *limit, all: *all}
		return a.withClient(func(c *client.Client) error {
			if err := completeID(ctx, c, query); err != nil {
				return err
			}
			if a.json {
				return printPages(ctx, c, p, &jsonPages{app: a})
			}
			return printPages(ctx, c, p, &tablePages[T]{
				app: a, list: l, table: a.table(l.head...).leaveOut(l.spare...),
			})
		})
	})
	return cmd
}

// completeID replaces the beginning of an id in a query by the id.
func completeID(ctx context.Context, c *client.Client, query url.Values) error {
	const name = "invocation"
	if !query.Has(name) {
		return nil
	}
	id, err := fullID(ctx, c, query.Get(name))
	query.Set(name, id)
	return err
}

// pages selects a number of items of a list, or all.
type pages struct {
	list  client.List
	query url.Values
	left  int
	all   bool
}

// printPages fetches pages until the items are printed. A page may have fewer items than there are
// (see GET /v1/invocations).
func printPages[T any](ctx context.Context, c *client.Client, p pages, out pagePrinter[T]) error {
	for {
		p.query.Set("limit", strconv.Itoa(p.size()))
		page, err := client.FetchPage[T](ctx, c, p.list, p.query)
		if err == nil {
			err = out.page(page)
		}
		if err != nil {
			return err
		}
		p.left -= len(page.Items)
		next := page.NextCursor
		if next == "" || !p.all && p.left <= 0 {
			return out.end(next)
		}
		p.query.Set("cursor", next)
	}
}

func (p pages) size() int {
	if p.all {
		return audit.MaxLimit
	}
	return p.left
}

// pagePrinter prints pages as one output.
type pagePrinter[T any] interface {
	page(page client.Page[T]) error
	end(nextCursor string) error
}

// tablePages prints pages as one table. The last line, on stderr, is how to get the next page.
type tablePages[T any] struct {
	app   *app
	list  pagedList[T]
	table table
}

func (t *tablePages[T]) page(page client.Page[T]) error {
	for _, item := range page.Items {
		t.list.row(&t.table, item)
	}
	for _, row := range page.Unreadable {
		fmt.Fprintf(t.app.err, "dray: row %d cannot be read: %s\n", row.Seq, escapeLine(row.Message))
	}
	if len(page.Items) == 0 {
		return nil
	}
	return t.table.write(t.app.out)
}

func (t *tablePages[T]) end(nextCursor string) error {
	if err := t.table.write(t.app.out); err != nil {
		return err
	}
	if nextCursor != "" {
		fmt.Fprintf(t.app.err, "more results: --cursor %s\n", escapeLine(nextCursor))
	}
	return nil
}

// jsonPages prints pages as one JSON value, in the form of a page, while they arrive.
type jsonPages struct {
	app        *app
	begun      bool
	unreadable []client.UnreadableRow
}

func (j *jsonPages) page(page client.Page[jsontext.Value]) error {
	j.unreadable = append(j.unreadable, page.Unreadable...)
	for _, item := range page.Items {
		if err := j.write(j.separator(), item); err != nil {
			return err
		}
	}
	return nil
}

func (j *jsonPages) separator() string {
	if j.begun {
		return ","
	}
	j.begun = true
	return `{"items":[`
}

func (j *jsonPages) end(nextCursor string) error {
	rest, err := json.Marshal(struct {
		NextCursor string                 `json:"next_cursor"`
		Unreadable []client.UnreadableRow `json:"unreadable,omitempty"`
	}{nextCursor, j.unreadable})
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	begin := "],"
	if !j.begun {
		begin = `{"items":[],`
	}
	return j.write(begin, append(rest[1:], '\n'))
}

func (j *jsonPages) write(before string, value []byte) error {
	_, err := j.app.out.Write(append([]byte(before), safeJSON(value)...))
	return outputError(err)
}
