package terminal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// watchEvery is the least time between two drawings of --watch. The pause is also watchShare times
// as long as the requests took, so that a watch of a large fleet costs the relay little.
const (
	watchEvery = 2 * time.Second
	watchShare = 10
)

// Watch calls draw again and again until ctx ends. A terminal shows the newest drawing. Elsewhere a
// line with the time comes before each drawing. An error of the first drawing ends the watch, and
// nothing is shown. The relay may come back after a later error, which is shown with the last
// drawing.
func Watch(ctx context.Context, out, errs io.Writer, draw func(table, rest, problems io.Writer) error) error {
	var last *drawing
	for {
		began := time.Now()
		d := &drawing{at: began, table: pane{terminal: out}, rest: pane{terminal: out}, problems: pane{terminal: out}}
		err := draw(&d.table, &d.rest, &d.problems)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			last = d
		case last == nil:
			return err
		}
		switch {
		case Overwrites(out):
			last.redraw(out, err)
		case err != nil:
			fmt.Fprintf(out, "--- %s\n", began.Format(time.DateTime))
			fmt.Fprintln(errs, "relay:", err)
		default:
			fmt.Fprintf(out, "--- %s\n%s%s%s", began.Format(time.DateTime), &d.table, &d.rest, &d.problems)
		}
		pause := time.NewTimer(max(watchEvery, watchShare*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// drawing is what a watched command printed. A terminal with too few lines leaves out the last lines
// of the table, then of the rest.
type drawing struct {
	at                    time.Time
	table, rest, problems pane
}

// pane is a part of a drawing. It has the colours and the width of the terminal that it is for.
type pane struct {
	bytes.Buffer
	terminal io.Writer
}

// redraw replaces the content of the terminal by the drawing. newer is the error of a later one, and
// nil if there is none.
func (d *drawing) redraw(terminal io.Writer, newer error) {
	head := d.at.Format(time.DateTime) + "\n"
	if newer != nil {
		head = fmt.Sprintf("%s\n%s %v\nthe state at %s", time.Now().Format(time.DateTime), StyleOf(terminal).Colour(Red, "relay:"), newer, head)
	}
	table, rest, problems := d.table.String(), d.rest.String(), d.problems.String()
	width, height := size(terminal)
	height-- // the cursor is below the last line
	for _, part := range []*string{&head, &problems, &rest, &table} {
		*part, height = cutLines(*part, width, height)
	}
	_, _ = io.WriteString(terminal, "\x1b[H\x1b[2J"+head+table+rest+problems) // a terminal that has gone away ends the process
}

// colourCode matches what Style adds to texts.
var colourCode = regexp.MustCompile("\x1b\\[[0-9]*m")

// cutLines returns the text as a terminal shows it in so many lines, and how many lines are left. An
// ellipsis replaces lines that do not fit.
func cutLines(text string, width, height int) (shown string, left int) {
	if height < 1 {
		return "", 0
	}
	end, cut := 0, 0 // of the lines that fit, and of those that fit with an ellipsis
	left = height
	for line := range strings.Lines(text) {
		wide := widthOf(strings.TrimSuffix(colourCode.ReplaceAllString(line, ""), "\n"))
		if left -= 1 + max(wide-1, 0)/width; left < 0 {
			return text[:cut] + "…\n", 0
		}
		if end += len(line); left > 0 {
			cut = end
		}
	}
	return text, left
}
