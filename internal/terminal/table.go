package terminal

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Cell is a cell of a table.
type Cell struct{ Text, Colour string }

// Coloured is a cell with a colour.
func Coloured(text, colour string) Cell { return Cell{text, colour} }

// Cells are cells without colours.
func Cells(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, text := range texts {
		out[i].Text = text
	}
	return out
}

// minColumn is the least width to which a column is cut.
const minColumn = 10

// widthOfLine is the width of a line with such columns, with two blanks between columns. Columns count
// with at most most.
func widthOfLine(widths []int, most int) int {
	line := -2
	for _, w := range widths {
		line += min(w, most) + 2
	}
	return line
}

// leaveOut returns which columns are left out of a line of at most width columns. It keeps the first
// column, and those with a red or yellow cell, such as NACKED. The column least is left out first, then
// columns in which all is well, then others; of each of these, the last column first.
func leaveOut(rows [][]Cell, widths []int, width, least int) map[int]bool {
	var orders [3][]int
	for i := len(widths) - 1; i > 0; i-- {
		order := 1
		if i == least {
			order = 0
		}
		for n, row := range rows {
			switch c := row[i]; {
			case c.Colour == Red || c.Colour == Yellow:
				order = 3
			case n > 0 && c.Colour != Green && c.Text != "-" && order == 1:
				order = 2
			}
		}
		if order < len(orders) {
			orders[order] = append(orders[order], i)
		}
	}
	out := map[int]bool{}
	line := widthOfLine(widths, minColumn)
	for _, i := range slices.Concat(orders[:]...) {
		if line <= width {
			break
		}
		if len(out) == 0 {
			line += 3 // the ellipsis
		}
		line -= min(widths[i], minColumn) + 2
		out[i] = true
	}
	return out
}

// keep returns the cells that are not left out. The first one that is left out becomes an ellipsis.
func keep[T any](row []T, leftOut map[int]bool, ellipsis T) (out []T) {
	first := len(row)
	for i := range leftOut {
		first = min(first, i)
	}
	for i, c := range row {
		switch {
		case i == first:
			out = append(out, ellipsis)
		case !leftOut[i]:
			out = append(out, c)
		}
	}
	return out
}

// fit makes the widest columns narrower until a line has at most width columns, with two blanks
// between columns.
func fit(widths []int, width int) {
	room := width - 2*(len(widths)-1)
	sum := 0
	for i := range widths {
		widths[i] = min(widths[i], max(room, minColumn))
		sum += widths[i]
	}
	for ; sum > room; sum-- {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}

// Table writes rows in columns. text/tabwriter would count the colours as text.
func (t Style) Table(w io.Writer, rows [][]Cell) {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i].Text = Visible(row[i].Text)
			c := row[i]
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], widthOf(c.Text))
		}
	}
	below := make([]Cell, len(rows)) // the messages that have lines of their own
	if last := len(widths) - 1; t.width > 0 {
		if t.message != "" && widthOfLine(widths, t.width) > t.width {
			widths = widths[:last]
			for i, row := range rows {
				if below[i], rows[i] = row[last], row[:last]; below[i].Text == t.message || below[i].Text == "-" {
					below[i].Text = ""
				}
			}
		}
		leftOut := leaveOut(rows, widths, t.width, t.least)
		for i := range rows {
			rows[i] = keep(rows[i], leftOut, Cell{Text: "…"})
		}
		widths = keep(widths, leftOut, 1)
		fit(widths, t.width)
	}
	var out strings.Builder
	for n, row := range rows {
		for i, c := range row {
			c.Text = truncate(c.Text, widths[i])
			out.WriteString(t.Colour(c.Colour, c.Text))
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-widthOf(c.Text)+2))
			}
		}
		out.WriteByte('\n')
		if c := below[n]; c.Text != "" {
			out.WriteString("  " + t.Colour(c.Colour, c.Text) + "\n")
		}
	}
	_, _ = io.WriteString(w, out.String()) // the reader of a pipe may have gone
}

// Layout says how a list is printed: as a table, or as data.
type Layout struct {
	Format    string // FormatTable, if empty
	NoHeaders bool   // for scripts, which read the rows alone
}

// Wide reports whether a table is not cut to the terminal.
func (l Layout) Wide() bool { return l.Format == FormatWide }

// IsData reports whether the list is printed as JSON or YAML.
func (l Layout) IsData() bool { return l.Format == FormatJSON || l.Format == FormatYAML }

// Column is a column of a table: its head, and the cell of a row.
type Column[T any] struct {
	head string
	Cell func(row *T) Cell
	// message: the column has sentences; least: it is left out first. Both concern narrow terminals.
	message, least bool
}

// ColumnOf makes a column.
func ColumnOf[T any](head string, of func(row *T) Cell) Column[T] {
	return Column[T]{head: head, Cell: of}
}

// TextColumn makes a column without colours. An empty text is shown as "-".
func TextColumn[T any](head string, of func(row *T) string) Column[T] {
	return ColumnOf(head, func(row *T) Cell { return Cell{Text: cmp.Or(of(row), "-")} })
}

// Message returns the column as one that has sentences. If it is the last one of a table that is too
// wide for the terminal, they are lines of their own below their rows.
func (c Column[T]) Message() Column[T] {
	c.message = true
	return c
}

// Least returns the column as the one that a table that is too wide for the terminal leaves out first.
func (c Column[T]) Least() Column[T] {
	c.least = true
	return c
}

// Problem is the cell of a problem; empty: there is none.
func Problem(text string) Cell {
	if text == "" {
		return Cell{Text: "-"}
	}
	return Cell{text, Yellow}
}

// PrintTable writes rows as a table. A terminal shows it cut, unless with -o wide.
func PrintTable[T any](w io.Writer, as Layout, columns []Column[T], rows []T) {
	var lines [][]Cell
	if !as.NoHeaders {
		head := make([]Cell, len(columns))
		for i := range columns {
			head[i].Text = columns[i].head
		}
		lines = append(lines, head)
	}
	for i := range rows {
		line := make([]Cell, len(columns))
		for j := range columns {
			line[j] = columns[j].Cell(&rows[i])
		}
		lines = append(lines, line)
	}
	t := StyleOf(w)
	if last := columns[len(columns)-1]; last.message {
		t.message = last.head
	}
	t.least = max(0, slices.IndexFunc(columns, func(c Column[T]) bool { return c.least }))
	if as.Wide() {
		t.width = 0
	}
	t.Table(w, lines)
}

// Alarming is a number that has a colour unless it is 0.
func Alarming(n int, colour string) Cell {
	if n == 0 {
		colour = ""
	}
	return Cell{strconv.Itoa(n), colour}
}
