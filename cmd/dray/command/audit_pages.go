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

// pagedList completes a command that lists what fetch returns for the values of its flags.
type pagedList[T any] struct {
	flags []filterFlag
	fetch func(*client.Client, context.Context, url.Values) (client.Reply[client.Page[T]], error)
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
		p := pages[T]{list: l, query: query, left: *limit, all: *all, out: l.printer(a)}
		return a.withClient(func(c *client.Client) error {
			if err := completeID(ctx, c, query); err != nil {
				return err
			}
			return p.print(ctx, c)
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

// pages fetches pages until a number of items is printed, or all are. A page may have fewer items
// than there are (see GET /v1/invocations).
type pages[T any] struct {
	list  pagedList[T]
	query url.Values
	left  int
	all   bool
	out   pagePrinter[T]
}

func (p *pages[T]) print(ctx context.Context, c *client.Client) error {
	for {
		p.query.Set("limit", strconv.Itoa(p.size()))
		page, err := p.list.fetch(c, ctx, p.query)
		if err == nil {
			err = p.out.page(page)
		}
		if err != nil {
			return err
		}
		p.left -= len(page.Value.Items)
		next := page.Value.NextCursor
		if next == "" || !p.all && p.left <= 0 {
			return p.out.end(next)
		}
		p.query.Set("cursor", next)
	}
}

func (p *pages[T]) size() int {
	if p.all {
		return audit.MaxLimit
	}
	return p.left
}

// pagePrinter prints pages as one output.
type pagePrinter[T any] interface {
	page(page client.Reply[client.Page[T]]) error
	end(nextCursor string) error
}

func (l pagedList[T]) printer(a *app) pagePrinter[T] {
	if a.json {
		return &jsonPages[T]{app: a}
	}
	return &tablePages[T]{app: a, list: l, table: a.table(l.head...).leaveOut(l.spare...)}
}

// tablePages prints pages as one table. The last line, on stderr, is how to get the next page.
type tablePages[T any] struct {
	app   *app
	list  pagedList[T]
	table table
}

func (t *tablePages[T]) page(page client.Reply[client.Page[T]]) error {
	for _, item := range page.Value.Items {
		t.list.row(&t.table, item)
	}
	for _, row := range page.Value.Unreadable {
		fmt.Fprintf(t.app.err, "dray: row %d cannot be read: %s\n", row.Seq, escapeLine(row.Message))
	}
	if len(page.Value.Items) == 0 {
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
type jsonPages[T any] struct {
	app        *app
	begun      bool
	unreadable []jsontext.Value
}

func (j *jsonPages[T]) page(page client.Reply[client.Page[T]]) error {
	var raw struct {
		Items      []jsontext.Value `json:"items"`
		Unreadable []jsontext.Value `json:"unreadable"`
	}
	if err := json.Unmarshal(page.JSON, &raw); err != nil {
		return fmt.Errorf("decode a page: %w", err)
	}
	j.unreadable = append(j.unreadable, raw.Unreadable...)
	for _, item := range raw.Items {
		if err := j.write(j.separator(), item); err != nil {
			return err
		}
	}
	return nil
}

func (j *jsonPages[T]) separator() string {
	if j.begun {
		return ","
	}
	j.begun = true
	return `{"items":[`
}

func (j *jsonPages[T]) end(nextCursor string) error {
	rest, err := json.Marshal(struct {
		NextCursor string           `json:"next_cursor"`
		Unreadable []jsontext.Value `json:"unreadable,omitempty"`
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

func (j *jsonPages[T]) write(before string, value []byte) error {
	_, err := j.app.out.Write(append([]byte(before), safeJSON(value)...))
	return outputError(err)
}
