package status

import (
	"fmt"
	"io"
	"time"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
)

// ReloadingText says how far a change of the rules is; empty: no reload is in work.
func ReloadingText(r *admin.Reloading) string {
	switch {
	case r == nil:
		return ""
	case r.Ending > 0:
		return fmt.Sprintf("the rules changed: %d of %s have to end, within %s (downstream.drain)",
			r.Ending, spelling.Counted(int(r.Clients), "client"), time.Duration(r.Over*float64(time.Second)))
	case r.Clients > 0:
		return fmt.Sprintf("the rules changed: %d of %s are checked", r.Checked, spelling.Counted(int(r.Clients), "client"))
	}
	return fmt.Sprintf("a reload compares the keys of all clients: %d so far", r.Checked)
}

// maxAlike bounds the printed problems with the same impact and next step.
const maxAlike = 3

// printProblems prints a line for each problem. Problems with the same impact and next step share a
// second line with both.
func printProblems(w io.Writer, problems []overview.Problem, now time.Time) {
	type advice struct{ severity, impact, next string }
	alike := map[advice][]*overview.Problem{}
	var all []advice
	for i := range problems {
		p := &problems[i]
		of := advice{p.Severity, p.Impact, p.Next}
		if alike[of] == nil {
			all = append(all, of)
		}
		alike[of] = append(alike[of], p)
	}
	t := terminal.StyleOf(w)
	for _, of := range all {
		colour := terminal.Red
		if of.severity == overview.Warning {
			colour = terminal.Yellow
		}
		for i, p := range alike[of] {
			if i == maxAlike {
				fmt.Fprintf(w, "  and %d more like this\n", len(alike[of])-i)
				break
			}
			fmt.Fprintf(w, "%s %s\n", t.Colour(colour, "!"), problemLine(p, now))
		}
		fmt.Fprintf(w, "  %s\n", terminal.Visible(of.impact+" "+of.next))
	}
}

// problemLine is the text of a problem, with how long it has lasted or when it occurred last.
func problemLine(p *overview.Problem, now time.Time) string {
	line := terminal.Visible(p.Text)
	switch {
	case !p.Since.IsZero():
		line += " (for " + terminal.Age(now.Sub(p.Since)) + ")"
	case !p.Last.IsZero():
		line += " (last " + terminal.Age(now.Sub(p.Last)) + " ago)"
	}
	return line
}
