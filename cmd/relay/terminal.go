package main

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// tint colours text for terminals. The zero tint adds no colours.
type tint struct{ on bool }

const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
)

// tintOf returns the tint for w: with colours on a terminal, unless NO_COLOR is set or TERM is
// dumb.
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

// redrawn reports whether w is a terminal on which a line can be overwritten.
func redrawn(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// terminalWidth is the width of w in characters; 80 if it is unknown.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// cutTo cuts a line so that it fits into one line of the terminal. The carriage return that
// overwrites it later reaches only the last line.
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

// plain replaces control characters, which a terminal would interpret. Use it for text from clients
// and origins.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// onOneLine is plain for text of several lines: it replaces each line end by a space.
func onOneLine(s string) string { return plain(strings.Join(strings.Fields(s), " ")) }

// cell is a cell of a table.
type cell struct{ text, colour string }

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
	_, _ = io.WriteString(w, out.String()) // the reader of a pipe may have gone
}
