//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math"
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
	if len(a) != len(b) {
		return nil
	}
	v := make([]float64, len(a))
	for i := range a {
		v[i] = a[i] / b[i]
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
	digits := 0
	if a := math.Abs(s.Median); a > 0 && a < 100 {
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
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	*all = append(*all, c)
	return c, nil
}

func stopAll(all *[]*contender) {
	for _, c := range *all {
		c.stop()
	}
}

// among are the entries that a study is about, without those that -only leaves
// out.
func (o *options) among(names ...string) []*entry {
	var out []*entry
	for _, name := range names {
		for i := range entries {
			if entries[i].name == name && o.wants(name) {
				out = append(out, &entries[i])
			}
		}
	}
	return out
}

// Memory is at rest when it has not changed by more than restBytes for a while:
// the relay gives free memory back when it saw for five to ten seconds that a
// burst is over.
const (
	restBytes = 1 << 20
	restTime  = 500 * time.Millisecond
	restRelay = 12 * time.Second
	restMost  = time.Minute
)

// rested has a server collect its garbage, waits until the runtime has given
// back what it is going to, and returns its resident memory.
func (c *contender) rested(ctx context.Context) (int64, error) {
	for range 2 { // the second empties the pools
		if err := c.collect(ctx); err != nil {
			return 0, err
		}
	}
	while := max(c.rest, restTime)
	was, err := resident(c.proc.pid())
	for end := time.Now().Add(restMost); err == nil; {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(while):
		}
		var now int64
		if now, err = resident(c.proc.pid()); max(was-now, now-was) < restBytes || time.Now().After(end) {
			return now, err
		}
		was = now
	}
	return 0, err
}
