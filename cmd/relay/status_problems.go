package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"xdsrelay/internal/admin/overview"
)

// printProblems prints the relay's own problems: a line for each, and a second line with the impact
// and the next step.
func printProblems(ctx context.Context, w io.Writer, c *adminClient, now time.Time) error {
	var info struct{ Problems []overview.Problem }
	if err := c.get(ctx, "/server_info", nil, &info); err != nil {
		return err
	}
	t := tintOf(w)
	for i := range info.Problems {
		p := &info.Problems[i]
		_, _ = fmt.Fprintf(w, "%s%s\n  %s\n", t.as(red, "! "), problemLine(p, now), plain(p.Impact+" "+p.Next)) // the reader of a pipe may have gone
	}
	return nil
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
