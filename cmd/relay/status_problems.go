package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"xdsrelay/internal/admin/overview"
)

// problems asks for the relay's own problems.
func (c *adminClient) problems(ctx context.Context) ([]overview.Problem, error) {
	var info struct{ Problems []overview.Problem }
	err := c.get(ctx, "/server_info", nil, &info)
	return info.Problems, err
}

// printProblems prints a line for each problem, and a second line with the impact and the next
// step.
func printProblems(w io.Writer, problems []overview.Problem, now time.Time) {
	t := tintOf(w)
	for i := range problems {
		p := &problems[i]
		_, _ = fmt.Fprintf(w, "%s%s\n  %s\n", t.as(red, "! "), problemLine(p, now), plain(p.Impact+" "+p.Next)) // the reader of a pipe may have gone
	}
}

// problemLine is the text of a problem, with how long it has lasted or when it occurred last.
func problemLine(p *overview.Problem, now time.Time) string {
	line := plain(p.Text)
	switch {
	case p.Since != nil:
		line += " (for " + age(now.Sub(*p.Since)) + ")"
	case p.Last != nil:
		line += " (last " + age(now.Sub(*p.Last)) + " ago)"
	}
	return line
}
