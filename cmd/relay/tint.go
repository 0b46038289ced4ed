package main

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// tint colours text for terminals; the zero tint leaves it as it is.
type tint struct{ on bool }

// The colours.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
)

// tintOf is for what is written to w: on a terminal, unless NO_COLOR is set.
func tintOf(w io.Writer) tint {
	return tint{isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// redrawn reports whether a line of w can be written again in its place.
func redrawn(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// terminalWidth is how many characters a line of w has room for.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// cutTo cuts a line so that it does not fill one of the terminal's: where it went on
// in the next, what is written over it would leave a part of it.
func cutTo(line string, width int) string {
	if utf8.RuneCountInString(line) < width {
		return line
	}
	return string([]rune(line)[:max(width-2, 0)]) + "…"
}

func (t tint) as(colour, text string) string {
	if !t.on || text == "" || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// plain is a text that others wrote without what a terminal would take for an order.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// onOneLine is plain for a text of several lines, whose line ends become spaces.
func onOneLine(s string) string { return plain(strings.Join(strings.Fields(s), " ")) }

// cell is a part of a table's row.
type cell struct{ text, colour string }

// table writes rows in columns. text/tabwriter would count colours as text.
func (t tint) table(w io.Writer, rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i].text = plain(row[i].text)
			c := row[i]
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		for i, c := range row {
			out.WriteString(t.as(c.colour, c.text))
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		out.WriteByte('\n')
	}
	_, _ = io.WriteString(w, out.String()) // whoever reads has gone
}
