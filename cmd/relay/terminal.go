package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"xdsrelay/internal/admin/jsonyaml"
)

// tint colours text for terminals, and fits tables to their width. The zero tint does neither.
type tint struct {
	on    bool
	width int // of the terminal in columns; 0: tables are not cut
	// message is the head of the last column if that has sentences. If the table is too wide, they are
	// lines of their own below their rows.
	message string
}

const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
)

// tintOf returns the tint for w. On a terminal it has the terminal's width, and colours unless
// NO_COLOR is set or TERM is dumb.
func tintOf(w io.Writer) tint {
	if !isTerminal(w) {
		return tint{}
	}
	return tint{on: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", width: terminalWidth(w)}
}

// fileOf returns the file behind w, or behind the terminal that a pane is for.
func fileOf(w io.Writer) (*os.File, bool) {
	if p, ok := w.(*pane); ok {
		w = p.terminal
	}
	if o, ok := w.(*checkedOutput); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return f, ok
}

func isTerminal(w io.Writer) bool {
	f, ok := fileOf(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// redrawn reports whether w is a terminal on which a line can be overwritten.
func redrawn(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// terminalSize is the size of w in columns and lines; 80 by 24 if it is unknown. COLUMNS is the width if it is
// set.
func terminalSize(w io.Writer) (width, height int) {
	width, height = 80, 24
	if f, ok := fileOf(w); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return width, height
}

func terminalWidth(w io.Writer) int {
	width, _ := terminalSize(w)
	return width
}

// cutTo cuts a line so that it fits into one line of the terminal. The carriage return that
// overwrites it later reaches only the last line.
func cutTo(line string, width int) string { return truncate(line, width-1) }

// truncate cuts a text to n columns of the terminal. The last one is then an ellipsis.
func truncate(s string, n int) string {
	if widthOf(s) <= n {
		return s
	}
	return headOf(s, n-1) + "…"
}

// headOf returns the beginning of s that has at most n columns of the terminal.
func headOf(s string, n int) string {
	for i, r := range s {
		if n -= widthOfRune(r); n < 0 {
			return s[:i]
		}
	}
	return s
}

// widthOf returns how many columns of the terminal s has.
func widthOf(s string) (n int) {
	for _, r := range s {
		n += widthOfRune(r)
	}
	return n
}

// widthOfRune is 2 for characters of East Asia and for emoji, and 0 for combining marks.
func widthOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func (t tint) as(colour, text string) string {
	if !t.on || text == "" || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// plain escapes characters that a terminal would interpret or hide: see jsonyaml.Visible. Use it for
// text from clients and origins.
func plain(s string) string { return jsonyaml.Visible(s) }

// onOneLine is plain for text of several lines: it replaces each line end by a space.
func onOneLine(s string) string { return plain(strings.Join(strings.Fields(s), " ")) }

// cell is a cell of a table.
type cell struct{ text, colour string }

func cells(texts ...string) []cell {
	out := make([]cell, len(texts))
	for i, text := range texts {
		out[i].text = text
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
// column, and those with a red or yellow cell, such as NACKED. VARIANT is left out first, then columns
// in which all is well, then others; of each of these, the last column first.
func leaveOut(rows [][]cell, widths []int, width int) map[int]bool {
	var orders [3][]int
	for i := len(widths) - 1; i > 0; i-- {
		order := 1
		for n, row := range rows {
			switch c := row[i]; {
			case n == 0 && c.text == "VARIANT":
				order = 0
			case c.colour == red || c.colour == yellow:
				order = 3
			case n > 0 && c.colour != green && c.text != "-" && order == 1:
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

// table writes rows in columns. text/tabwriter would count the colours as text.
func (t tint) table(w io.Writer, rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i].text = plain(row[i].text)
			c := row[i]
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], widthOf(c.text))
		}
	}
	below := make([]cell, len(rows)) // the messages that have lines of their own
	if last := len(widths) - 1; t.width > 0 {
		if t.message != "" && widthOfLine(widths, t.width) > t.width {
			widths = widths[:last]
			for i, row := range rows {
				if below[i], rows[i] = row[last], row[:last]; below[i].text == t.message || below[i].text == "-" {
					below[i].text = ""
				}
			}
		}
		leftOut := leaveOut(rows, widths, t.width)
		for i := range rows {
			rows[i] = keep(rows[i], leftOut, cell{text: "…"})
		}
		widths = keep(widths, leftOut, 1)
		fit(widths, t.width)
	}
	var out strings.Builder
	for n, row := range rows {
		for i, c := range row {
			c.text = truncate(c.text, widths[i])
			out.WriteString(t.as(c.colour, c.text))
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-widthOf(c.text)+2))
			}
		}
		out.WriteByte('\n')
		if c := below[n]; c.text != "" {
			out.WriteString("  " + t.as(c.colour, c.text) + "\n")
		}
	}
	_, _ = io.WriteString(w, out.String()) // the reader of a pipe may have gone
}
