package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// Style colours text for terminals, and fits tables to their width. The zero Style does neither.
type Style struct {
	on    bool
	width int // of the terminal in columns; 0: tables are not cut
	// message is the head of the last column if that has sentences. If the table is too wide, they are
	// lines of their own below their rows.
	message string
	// least is the column that is left out first if the table is too wide; 0: none is.
	least int
}

// Colours of texts.
const (
	Green  = "32"
	Yellow = "33"
	Red    = "31"
	Faint  = "2"
)

// StyleOf returns the style for w. On a terminal it has the terminal's width, and colours unless
// NO_COLOR is set or TERM is dumb.
func StyleOf(w io.Writer) Style {
	if !isTerminal(w) {
		return Style{}
	}
	return Style{on: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", width: Width(w)}
}

// fileOf returns the file behind w, or behind the terminal that a pane is for.
func fileOf(w io.Writer) (*os.File, bool) {
	if p, ok := w.(*pane); ok {
		w = p.terminal
	}
	if o, ok := w.(*Output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return f, ok
}

func isTerminal(w io.Writer) bool {
	f, ok := fileOf(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Overwrites reports whether w is a terminal on which a line can be overwritten.
func Overwrites(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// size is the size of w in columns and lines; 80 by 24 if it is unknown. COLUMNS is the width if it is
// set.
func size(w io.Writer) (width, height int) {
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

// Width is the width of w in columns; 80 if it is unknown.
func Width(w io.Writer) int {
	width, _ := size(w)
	return width
}

// Colour returns the text in a colour; "": without one.
func (t Style) Colour(colour, text string) string {
	if !t.on || text == "" || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
