package terminal

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// On a terminal, the widest columns are cut. A column keeps at least minColumn characters. If that is
// not enough, columns without a problem are left out. Messages have lines of their own.
func TestTablesFitTheTerminal(t *testing.T) {
	for _, c := range []struct{ widths, want []int }{
		{[]int{5, 5, 5}, []int{5, 5, 5}},
		{[]int{5, 60, 5}, []int{5, 26, 5}},
		{[]int{30, 60, 5}, []int{15, 16, 5}},
		{[]int{12, 12, 12, 12, 9}, []int{10, 10, 10, 10, 9}},
		{[]int{1 << 20}, []int{40}},
	} {
		got := slices.Clone(c.widths)
		if fit(got, 40); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.widths, got, c.want)
		}
	}
	table := func(t Style, rows ...[]Cell) string {
		var out bytes.Buffer
		t.Table(&out, rows)
		return out.String()
	}
	nack, synced := Cell{"NACKED v2 1m30s", Red}, Cell{"SYNCED v2", Green}
	status := [][]Cell{Cells("NODE", "KEY", "VARIANT", "CDS", "EDS"), {{Text: "web-0"}, {Text: "edge"}, {Text: "delta"}, nack, synced}}
	for _, c := range []struct {
		width int
		want  string
	}{
		{48, "NODE   KEY   VARIANT  CDS              EDS\nweb-0  edge  delta    NACKED v2 1m30s  SYNCED v2\n"},
		{40, "NODE   KEY   …  CDS            EDS\nweb-0  edge  …  NACKED v2 1m…  SYNCED v2\n"},
		{30, "NODE   KEY   …  CDS\nweb-0  edge  …  NACKED v2 1m3…\n"},
		{20, "NODE   …  CDS\nweb-0  …  NACKED v2…\n"},
		{5, "NODE   …  CDS\nweb-0  …  NACKED v2…\n"},
	} {
		rows := make([][]Cell, len(status))
		for i := range status {
			rows[i] = slices.Clone(status[i])
		}
		if got := table(Style{width: c.width, least: 2}, rows...); got != c.want {
			t.Errorf("in %d columns:\n%s\nwant:\n%s", c.width, got, c.want)
		}
	}
	nacks := func(width int) string {
		return table(Style{width: width, message: "MESSAGE"}, Cells("NODE", "LAST", "MESSAGE"), []Cell{{Text: "edge-0"}, {Text: "1m30s"}, {"the client says näh", Red}}, Cells("edge-1", "3s", "-"))
	}
	if got := nacks(34); got != "NODE    LAST   MESSAGE\nedge-0  1m30s  the client says näh\nedge-1  3s     -\n" {
		t.Errorf("%s", got)
	}
	if got := nacks(33); got != "NODE    LAST\nedge-0  1m30s\n  the client says näh\nedge-1  3s\n" {
		t.Errorf("%s", got)
	}
}

// Columns are aligned by the width of characters on a terminal, and texts are cut by it.
func TestTableCountsColumnsOfTheTerminal(t *testing.T) {
	table := func(width int, first, last string) string {
		var out bytes.Buffer
		(Style{width: width}).Table(&out, [][]Cell{Cells(first, last), Cells("a", "b")})
		return out.String()
	}
	for _, test := range []struct {
		width             int
		first, last, want string
	}{
		{0, "边缘", "x", "边缘  x\na     b\n"},
		{0, "🚀", "x", "🚀  x\na   b\n"},
		{0, "e\u0301", "x", "e\u0301  x\na  b\n"},
		{0, "  ", "x", "\"  \"  x\na     b\n"},
		{24, "边缘边缘边缘边缘", "x", "边缘边缘边缘边缘  x\na                 b\n"},
		{15, "边缘边缘边缘边缘", "y", "边缘边缘边…   y\na             b\n"},
		{15, "a", "边缘边缘边缘边缘", "a  边缘边缘边…\na  b\n"},
	} {
		if got := table(test.width, test.first, test.last); got != test.want {
			t.Errorf("%q, %q in %d columns:\n%s\nwant:\n%s", test.first, test.last, test.width, got, test.want)
		}
	}
}

// A terminal has colours.
func TestColours(t *testing.T) {
	var out bytes.Buffer
	(Style{on: true}).Table(&out, [][]Cell{{{Text: "A"}, {Text: "B"}}, {{Text: "long", Colour: Green}, {Text: "x\x1b[31m\u202e\u2028\u200b"}}})
	if got := out.String(); got != "A     B\n\x1b[32mlong\x1b[0m  x\\x1b[31m\\u202e\\u2028\\u200b\n" {
		t.Errorf("%q", got)
	}
	if StyleOf(&out).on || isTerminal(&out) {
		t.Error("a buffer is taken for a terminal")
	}
}

// YAML keeps the order of the fields.
func TestPrintData(t *testing.T) {
	var out bytes.Buffer
	if err := PrintData(&out, FormatYAML, json.RawMessage(`{"z": 1, "a": "on"}`)); err != nil || out.String() != "z: 1\na: \"on\"\n" {
		t.Errorf("%v %q", err, out.String())
	}
}

// A line that is overwritten later has no more than one line of the terminal.
func TestLinesThatAreOverwritten(t *testing.T) {
	for _, c := range []struct {
		line string
		to   int
		want string
	}{{"abc", 4, "abc"}, {"abcd", 4, "ab…"}, {"äöüäöü", 5, "äöü…"}, {"abc", 1, "…"}, {"", 0, "…"}} {
		if got := CutTo(c.line, c.to); got != c.want {
			t.Errorf("%q to %d: %q", c.line, c.to, got)
		}
	}
}
