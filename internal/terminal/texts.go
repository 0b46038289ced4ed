package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/xds"
)

// Shorten shortens a value to keep the table readable; -o json has all of it.
func Shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// ShortTypes are the types' short names.
func ShortTypes(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = ShortType(u)
	}
	return out
}

// ShortType is a type's short name, such as CDS. An unknown type's URL is made safe for a terminal.
func ShortType(url string) string {
	if url == "" {
		return "all"
	}
	if t := xds.TypeOf(xds.TypeURL(url)); t.Short != "" {
		return t.Short
	}
	return Visible(url)
}

// ShortVersion is enough of a version to tell it from others.
func ShortVersion(v string) string {
	if len(v) == 32 && strings.Trim(v, "0123456789abcdef") == "" { // a hash that the relay made
		return v[:8]
	}
	return Shorten(v)
}

// Age formats a duration for users.
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// FirstLine is the first line of an error's text.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// CutTo cuts a line so that it fits into one line of the terminal. The carriage return that
// overwrites it later reaches only the last line.
func CutTo(line string, width int) string { return truncate(line, width-1) }

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

// Visible escapes characters that a terminal would interpret or hide: see jsonyaml.Visible. Use it for
// text from clients and origins.
func Visible(s string) string { return jsonyaml.Visible(s) }

// OneLine is Visible for text of several lines: it replaces each line end by a space.
func OneLine(s string) string { return Visible(strings.Join(strings.Fields(s), " ")) }
