package sources

import (
	"fmt"
	"strings"

	"xdsrelay/internal/admin/overview"
)

// OriginProblems reports what goes wrong at an origin that is not away.
func OriginProblems(o *Origin, say func(overview.Problem)) {
	if o.Silent > 0 {
		say(overview.Problem{Text: fmt.Sprintf("origin %s does not answer on %s", o.Name, counted(o.Silent, "stream")), Since: o.SilentSince,
			Impact: "Clients of these keys get no changes. New clients may wait.",
			Next:   "Check that the origin has resources for the nodes that relay keys shows, and read its log: it accepted the streams."})
	}
	for _, r := range o.Rejected {
		more := ""
		if r.Keys > 1 {
			more = " and " + counted(r.Keys-1, "other")
		}
		say(overview.Problem{Text: fmt.Sprintf("the relay rejects %s responses of origin %s for key %s%s: %s", r.Type, o.Name, r.Key, more, r.Error), Since: &r.Since,
			Impact: "Clients keep the previous version.", Next: "Correct the resource at the origin."})
	}
	if len(o.Faults) > 0 {
		say(overview.Problem{Text: fmt.Sprintf("origin %s has files that cannot be used: %s", o.Name, strings.Join(o.Faults, "; ")),
			Impact: "The previous content of these files stays in force.", Next: "Repair the files. The relay reads them again by itself."})
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
