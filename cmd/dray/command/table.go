package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// The layout of tables that are wider than the terminal.
const (
	narrowWidth  = 100 // on a terminal with fewer columns, times and ids are shorter
	lastRoom     = 24  // characters that the last column gets before others are left out
	roomyCell    = 16  // characters that a column that can be cut gets before others are left out
	shortestCell = 8   // to which such a column is cut
	shortestEnd  = 12  // to which the ends of calls are cut, which differ in their beginning
)

// pathColumns can be cut at their beginning, cutColumns at their end.
var (
	pathColumns = []string{"WHERE", "RUNS", "FOLDER", "WORKSPACE", "PATH"}
	cutColumns  = []string{"TOOL", "PRINCIPAL", "WHO", endColumn}
)

// table is text in columns. Cells are escaped for a terminal.
type table struct {
	head []string
	rows [][]string
	// width is the maximum width of a line; 0 is no maximum. A wider table leaves out the columns of
	// spare, the first one first, until the last column is wide enough, and cuts cells.
	width int
	spare []string
	// paint returns a cell with a colour. Nil is none.
	paint func(column, cell string) string

	widths []int  // of the columns that were written; nil before the head
	hidden []bool // the columns that are left out
}

// table returns a table for our output: on a terminal its lines fit, and the ends of calls have a
// colour unless $NO_COLOR is set (https://no-color.org).
func (a *app) table(head ...string) table {
	t := table{head: head}
	if !isTerminal(a.out) {
		return t
	}
	t.width = columns(a.out)
	if os.Getenv("NO_COLOR") == "" {
		t.paint = paintEnd
	}
	return t
}

// leaveOut sets the columns that a narrow terminal does without, the first one first.
func (t table) leaveOut(columns ...string) table {
	t.spare = columns
	return t
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = escapeLine(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write prints the rows that were added since the last write. The first one prints the head too,
// and decides which columns are left out.
func (t *table) write(w io.Writer) error {
	rows, first := t.rows, t.widths == nil
	if first {
		t.widths, t.hidden = make([]int, len(t.head)), make([]bool, len(t.head))
		rows = append([][]string{t.head}, rows...)
	}
	t.rows = nil
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	if first && t.width > 0 {
		t.hide()
	}
	widths := t.fit()
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(t.line(row, widths))
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}

// hide leaves out columns until the last one is wide enough.
func (t *table) hide() {
	roomy := slices.Clone(t.widths)
	for i := range roomy {
		if t.canCut(i) {
			roomy[i] = min(roomy[i], max(roomyCell, len(t.head[i])))
		}
	}
	for _, name := range t.spare {
		if t.missing(roomy) <= 0 {
			return
		}
		t.hidden[slices.Index(t.head, name)] = true
	}
}

// canCut reports whether a column's cells may be cut to widen the last column.
func (t *table) canCut(i int) bool {
	return i < len(t.head)-1 &&
		(slices.Contains(pathColumns, t.head[i]) || slices.Contains(cutColumns, t.head[i]))
}

// shortest returns the width to which a column is cut.
func (t *table) shortest(i int) int {
	if t.head[i] == endColumn {
		return shortestEnd
	}
	return shortestCell
}

// missing returns by how much a line is too wide for columns of these widths, with a part of the
// last one.
func (t *table) missing(widths []int) int {
	last := len(widths) - 1
	need := min(widths[last], lastRoom)
	for i, width := range widths[:last] {
		if !t.hidden[i] {
			need += width + 2
		}
	}
	return need - t.width
}

// fit returns the widths of the columns, of which the widest are cut.
func (t *table) fit() []int {
	widths := slices.Clone(t.widths)
	for t.width > 0 && t.missing(widths) > 0 {
		widest := -1
		for i, width := range widths {
			if t.canCut(i) && !t.hidden[i] && width > t.shortest(i) &&
				(widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// line returns a row as a line. The colour of a cell does not count towards its width.
func (t *table) line(row []string, widths []int) string {
	var b strings.Builder
	at, gap := 0, 0
	for i, cell := range row {
		if t.hidden[i] {
			continue
		}
		cell = t.cutCell(i, cell, widths[i], t.width-at-gap)
		if cell != "" {
			b.WriteString(strings.Repeat(" ", gap))
			if t.paint == nil {
				b.WriteString(cell)
			} else {
				b.WriteString(t.paint(t.head[i], cell))
			}
			at, gap = at+gap+utf8.RuneCountInString(cell), 0
		}
		gap += widths[i] - utf8.RuneCountInString(cell) + 2
	}
	return b.String() + "\n"
}

// cutCell cuts a cell to its column, and to the rest of the line. Paths keep their end.
func (t *table) cutCell(i int, cell string, width, rest int) string {
	switch {
	case t.width == 0:
		return cell
	case strings.HasPrefix(cell, "/") && slices.Contains(pathColumns, t.head[i]):
		return cutFront(cell, min(width, rest))
	default:
		return cut(cell, min(width, rest))
	}
}

// cutFront is cut for a text whose end is kept.
func cutFront(s string, n int) string {
	length := utf8.RuneCountInString(s)
	switch {
	case length <= n:
		return s
	case n < 1:
		return ""
	default:
		return "…" + string([]rune(s)[length-n+1:])
	}
}

// paintEnd returns how a call ended in green, red, or yellow while it runs.
func paintEnd(column, cell string) string {
	color := 31
	switch {
	case column != endColumn || cell == endColumn:
		return cell
	case cell == string(dray.StatusSucceeded):
		color = 32
	case cell == string(dray.StatusRunning), cell == string(dray.StatusQueued):
		color = 33
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, cell)
}

// idCell returns an id for a table: on a terminal its beginning, which commands take too.
func (a *app) idCell(id string) string {
	switch {
	case !isTerminal(a.out):
		return id
	case a.isNarrow():
		return id[:min(len(id), narrowID)]
	default:
		return id[:min(len(id), shortID)]
	}
}

// The part of an id that has its time: to a quarter of a millisecond, and to a millisecond.
const shortID, narrowID = 18, 13

// timeCell is time for a table: on a narrow terminal without the year and the offset.
func (a *app) timeCell(t time.Time) string {
	if a.isNarrow() && !t.IsZero() {
		return t.In(a.zone()).Format("01-02 15:04:05")
	}
	return a.time(t)
}

// isNarrow reports whether the output is a terminal of few columns.
func (a *app) isNarrow() bool { return isTerminal(a.out) && columns(a.out) < narrowWidth }
