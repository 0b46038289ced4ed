package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// watchEvery is the least time between two drawings of --watch. The pause is also watchShare times
// as long as the requests took, so that a watch of a large fleet costs the relay little.
const (
	watchEvery = 2 * time.Second
	watchShare = 10
)

// watch calls draw again and again until ctx ends. A terminal shows the newest drawing, as much as
// fits. Elsewhere a line with the time comes before each drawing. An error ends the watch only at
// the first drawing: later the relay may come back.
func watch(ctx context.Context, out, errs io.Writer, draw func(out, errs io.Writer) error) error {
	for first := true; ; first = false {
		began := time.Now()
		err := drawOnce(out, errs, first, draw)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
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

// drawOnce draws, and shows an error in place of the drawing unless it is the first one.
func drawOnce(out, errs io.Writer, first bool, draw func(out, errs io.Writer) error) error {
	now := time.Now().Format(time.DateTime)
	s := &screen{terminal: out}
	if redrawn(out) {
		out, errs = s, s
		defer s.show()
	} else {
		now = "--- " + now
	}
	fmt.Fprintln(out, now)
	err := draw(out, errs)
	if err != nil && !first {
		fmt.Fprintln(errs, "relay:", err)
	}
	return err
}

// screen is a drawing for a terminal.
type screen struct {
	bytes.Buffer
	terminal io.Writer
}

// colourCode matches what tint adds to texts.
var colourCode = regexp.MustCompile("\x1b\\[[0-9]*m")

// show replaces the content of the terminal by the drawing. It leaves out the last lines if they do
// not fit.
func (s *screen) show() {
	width, height := terminalSize(s.terminal)
	var out strings.Builder
	out.WriteString("\x1b[H\x1b[2J")
	for line := range strings.Lines(s.String()) {
		characters := utf8.RuneCountInString(colourCode.ReplaceAllString(line, "")) - 1 // without the newline
		if height -= 1 + max(characters-1, 0)/width; height < 1 {
			break
		}
		out.WriteString(line)
	}
	_, _ = io.WriteString(s.terminal, out.String()) // a terminal that has gone away ends the process
}
