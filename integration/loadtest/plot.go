//go:build linux

package main

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// plot draws a report's ratios to raw TCP as bars with their intervals, into CASE.svg of a
// directory. The colours follow the reader's dark or light mode.
func (r *report) plot(dir string) error {
	if r.Study != nil {
		return r.Study.plot(dir, r.Case)
	}
	const (
		left, width, row, bar = 150, 420, 22, 14
		head                  = 46
	)
	type line struct {
		name, what string
		s          *spread
	}
	var lines []line
	most := 1.0
	for _, c := range r.Contenders {
		for _, l := range []line{{c.Name, "elapsed", c.ElapsedToRaw}, {c.Name, "CPU", c.CPUToRaw}} {
			if l.s != nil {
				lines = append(lines, l)
				most = max(most, l.s.High)
			}
		}
	}
	if len(lines) == 0 {
		return nil // nothing to compare with
	}
	at := func(v float64) float64 { return left + v/most*width }
	var b strings.Builder
	height := head + row*len(lines) + 12
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", left+width+150, height)
	b.WriteString("<style>text{fill:#222}.elapsed{fill:#4477aa}.CPU{fill:#ccbb44}path{stroke:#222}" +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#ddd}}</style>\n")
	fmt.Fprintf(&b, `<text x="8" y="18">%s</text><text x="8" y="34">× raw TCP, medians of %d rounds with their intervals</text>`+"\n", html.EscapeString(r.Load.String()), r.Rounds)
	for i, l := range lines {
		y := head + row*i
		if l.what == "elapsed" {
			fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`, y+bar-2, html.EscapeString(l.name))
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, l.what, left, y, at(l.s.Median)-left, bar)
		fmt.Fprintf(&b, `<path d="M%.1f %dH%.1f"/>`, at(l.s.Low), y+bar/2, at(l.s.High))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s %.2f</text>`+"\n", at(l.s.High)+6, y+bar-2, l.what, l.s.Median)
	}
	fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke-dasharray="3"/></svg>`+"\n", at(1), head-4, height-8)
	return saveSVG(dir, r.Case, b.String())
}

// plot draws the column Drawn of a study as bars.
func (s *study) plot(dir, name string) error {
	const (
		left, width, row, bar = 210, 380, 22, 14
		head                  = 46
	)
	type line struct {
		name string
		s    *spread
	}
	var lines []line
	most := 0.0
	for _, r := range s.Rows {
		if v := r.Values[s.Drawn]; v != nil {
			lines = append(lines, line{r.Name, v})
			most = max(most, v.High)
		}
	}
	if most <= 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", left+width+130, head+row*len(lines)+12)
	b.WriteString("<style>text{fill:#222}rect{fill:#4477aa}path{stroke:#222}" +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#ddd}}</style>\n")
	fmt.Fprintf(&b, `<text x="8" y="18">%s</text><text x="8" y="34">%s</text>`+"\n", html.EscapeString(s.What), html.EscapeString(s.Columns[s.Drawn]))
	at := func(v float64) float64 { return left + max(v, 0)/most*width }
	for i, l := range lines {
		y := head + row*i
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text><rect x="%d" y="%d" width="%.1f" height="%d"/>`, y+bar-2, html.EscapeString(l.name), left, y, at(l.s.Median)-left, bar)
		fmt.Fprintf(&b, `<path d="M%.1f %dH%.1f"/>`, at(l.s.Low), y+bar/2, at(l.s.High))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", at(l.s.High)+6, y+bar-2, html.EscapeString(l.s.short()))
	}
	b.WriteString("</svg>\n")
	return saveSVG(dir, name, b.String())
}

func saveSVG(dir, name, text string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, cmp.Or(name, "fanout")+".svg"), []byte(text), 0o644)
}
