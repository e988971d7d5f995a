package command

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is text in columns. Every cell is made harmless for a terminal; nothing is cut, since people copy ids and programs cut columns.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = escapeLine(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write prints the table, the head too where there are no rows: it says what was looked for.
func (t *table) write(w io.Writer) error {
	rows := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}
