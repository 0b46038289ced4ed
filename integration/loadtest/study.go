//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// study is the result of a case that does not consist of rounds with a common table. Its columns
// have the measured values.
type study struct {
	What    string     `json:"what"`
	Columns []string   `json:"columns"`
	Rows    []studyRow `json:"rows"`
	Drawn   int        `json:"drawn"` // the column in the plot
}

// studyRow has a value for each column, nil where there is none.
type studyRow struct {
	Name   string    `json:"name"`
	Values []*spread `json:"values"`
}

// add appends a row.
func (s *study) add(name string, values ...*spread) {
	s.Rows = append(s.Rows, studyRow{name, values})
}

// value finds a value by its row and column, nil if there is none.
func (s *study) value(row, column string) *spread {
	for _, r := range s.Rows {
		for i, c := range s.Columns {
			if r.Name == row && c == column {
				return r.Values[i]
			}
		}
	}
	return nil
}

// once is a value that was measured once.
func once(v float64) *spread { return &spread{v, v, v} }

// many is a value that was measured several times.
func many(values []float64) *spread {
	if len(values) == 0 {
		return nil
	}
	s := spreadOf(values)
	return &s
}

// quotients divides values that were measured in the same round.
func quotients(a, b []float64) *spread {
	return pairs(a, b, func(a, b float64) float64 { return a / b })
}

// differences subtracts values that were measured in the same round. Small differences between
// noisy numbers are clearer than quotients: an effect too small to measure has an interval that
// contains 0.
func differences(a, b []float64) *spread {
	return pairs(a, b, func(a, b float64) float64 { return a - b })
}

func pairs(a, b []float64, of func(a, b float64) float64) *spread {
	if len(a) != len(b) {
		return nil
	}
	v := make([]float64, len(a))
	for i := range a {
		v[i] = of(a[i], b[i])
	}
	return many(v)
}

func (s *study) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\t"+strings.Join(s.Columns, "\t"))
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range r.Values {
			line = append(line, v.short())
		}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	return t.Flush()
}

// short prints a median with at least three digits, and its interval if there is one.
func (s *spread) short() string {
	if s == nil {
		return "-"
	}
	digits, a := 0, math.Abs(s.Median)
	if s.Low < 0 && s.High > 0 {
		a = max(-s.Low, s.High) // the median may be almost zero
	}
	if a > 0 && a < 100 {
		digits = min(2-int(math.Floor(math.Log10(a))), 4)
	}
	if s.Low == s.High {
		return fmt.Sprintf("%.*f", digits, s.Median)
	}
	return s.text(digits)
}

// begun starts a server with its crowd. It adds both to all, which the caller stops.
func (o *options) begun(ctx context.Context, all *[]*contender, e *entry) (*contender, error) {
	o.log("starting %s", e.name)
	c, err := e.start(ctx, o)
	if err != nil {
		return nil, within(e.name, err)
	}
	*all = append(*all, c)
	return c, nil
}

func stopAll(all *[]*contender) {
	for _, c := range *all {
		c.stop()
	}
}

// among returns the entries that a study measures, without those that -only excludes. The other
// relay takes part if the relay does, unless the relay is measured alone.
func (o *options) among(names ...string) []*entry {
	var out []*entry
	all := o.entries()
	if len(names) > 1 && slices.Contains(names, nameRelay) {
		names = append(slices.Clone(names), nameOther)
	}
	for _, name := range names {
		for i := range all {
			if all[i].name == name && o.wants(name) {
				out = append(out, &all[i])
			}
		}
	}
	return out
}

// Memory is at rest when it has changed by at most restBytes for a while.
const (
	restBytes = 1 << 20
	restTime  = 500 * time.Millisecond
	restRelay = 2 * time.Second
	restMost  = time.Minute
)

// rested makes a server collect its garbage, and waits until the runtime has returned free memory.
// It reports memory that is still not at rest then, because later measurements are less reliable.
func (c *contender) rested(ctx context.Context) error {
	for range 2 { // the second empties the pools
		if err := c.collect(ctx); err != nil {
			return err
		}
	}
	moved, err := untilRest(ctx, max(c.rest, restTime), func() (int64, error) { return resident(c.proc.pid()) })
	if moved != 0 {
		c.log("%s: its memory is not at rest after %s: it changed by %d KB in the last %s", c.name, restMost, moved>>10, max(c.rest, restTime))
	}
	return err
}

// untilRest waits until a number of bytes has not changed for a while, at most about restMost. It
// returns the change in the last while, 0 if it was at rest.
func untilRest(ctx context.Context, while time.Duration, read func() (int64, error)) (moved int64, err error) {
	was, err := read()
	for end := time.Now().Add(restMost); err == nil; {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(while):
		}
		var now int64
		if now, err = read(); err != nil {
			break
		}
		if moved = now - was; max(moved, -moved) < restBytes {
			return 0, nil
		}
		if time.Now().After(end) {
			return moved, nil
		}
		was = now
	}
	return 0, err
}
