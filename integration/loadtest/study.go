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

// study is the result of a case that is not made of rounds with a table of
// their own: what is measured is in its columns.
type study struct {
	What    string     `json:"what"`
	Columns []string   `json:"columns"`
	Rows    []studyRow `json:"rows"`
	Drawn   int        `json:"drawn"` // the column of the plot
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

// value finds one by its row and column; nil if there is none.
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

// once is what was measured one time.
func once(v float64) *spread { return &spread{v, v, v} }

// many is what was measured several times.
func many(values []float64) *spread {
	if len(values) == 0 {
		return nil
	}
	s := spreadOf(values)
	return &s
}

// quotients are those of values that were measured in the same round.
func quotients(a, b []float64) *spread {
	return pairs(a, b, func(a, b float64) float64 { return a / b })
}

// differences are those of values that were measured in the same round. Of small
// differences between noisy numbers they say more than quotients: nothing that
// can be measured is an interval with 0 in it.
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

// short writes a median with three digits at least, and its interval if there
// is one.
func (s *spread) short() string {
	if s == nil {
		return "-"
	}
	digits, a := 0, math.Abs(s.Median)
	if s.Low < 0 && s.High > 0 {
		a = max(-s.Low, s.High) // the median may be as good as nothing
	}
	if a > 0 && a < 100 {
		digits = min(2-int(math.Floor(math.Log10(a))), 4)
	}
	if s.Low == s.High {
		return fmt.Sprintf("%.*f", digits, s.Median)
	}
	return s.text(digits)
}

// begun starts a server with its crowd, and leaves it to all to be stopped.
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

// among are the entries that a study is about, without those that -only leaves out. Where
// the relay takes part, the other relay does as well, but where it is alone.
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

// Memory is at rest when it has not changed by more than restBytes for a while.
const (
	restBytes = 1 << 20
	restTime  = 500 * time.Millisecond
	restRelay = 2 * time.Second
	restMost  = time.Minute
)

// rested has a server collect its garbage, and waits until the runtime has given
// back what it is going to. Memory that is still not at rest then is said to be
// so: what is measured next is of less worth.
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

// untilRest waits until a number of bytes has not changed for a while, for
// restMost about, and returns by how much it changed in the last while, or 0 if
// it was at rest.
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
