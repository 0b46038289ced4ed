package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Diff prints the lines of a diff in colours.
func Diff(w io.Writer, t Style, diff string) {
	for line := range strings.Lines(diff) {
		colour := map[byte]string{'+': Green, '-': Red, '@': Faint}[line[0]]
		fmt.Fprintln(w, t.Colour(colour, Visible(strings.TrimSuffix(line, "\n"))))
	}
}
