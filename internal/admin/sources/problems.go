package sources

import (
	"fmt"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/upstream"
)

// OriginProblems reports what goes wrong at an origin that is not away.
func OriginProblems(o *upstream.OriginStatus, say func(overview.Problem)) {
	for _, r := range o.Rejected {
		more := ""
		if r.Keys > 1 {
			more = " and " + spelling.Counted(r.Keys-1, "other")
		}
		say(overview.Problem{Text: fmt.Sprintf("the relay rejects %s responses of origin %s for key %s%s: %s", r.Type, o.Name, r.Key, more, r.Error), Key: r.Key, Since: r.Since,
			Impact: "Clients keep the previous version.", Next: "Correct the resource at the origin."})
	}
	if len(o.Faults) > 0 {
		say(overview.Problem{Text: fmt.Sprintf("origin %s has files that cannot be used: %s", o.Name, strings.Join(o.Faults, "; ")),
			Impact: "The previous content of these files stays in force.", Next: "Repair the files. The relay reads them again by itself."})
	}
}

// maxKeysShown bounds the keys with a problem of one kind that are shown.
const maxKeysShown = 20

// KeyProblems reports what goes wrong between an origin that is not away and single keys.
func KeyProblems(keys []keystatus.Key, say func(overview.Problem)) {
	suspended := problemOfKeys{say: say,
		impact: "Clients wait for these resources. Other resources of the key are served.",
		next:   "Correct the type or name at these clients, or let the origin accept it, as docs/operations.md says in \"Suspended subscriptions\"."}
	ends := problemOfKeys{say: say,
		impact: "Changes may reach clients late.",
		next:   "Look in the origin's log, and for a proxy with a time limit for streams."}
	silent := problemOfKeys{say: say,
		impact: "Clients of these keys get no changes. New clients may wait.",
		next:   "The origin accepted the stream. The usual cause is that it has no resources for this node, so check the node's id in these resources, or upstream.node. Otherwise read the origin's log."}
	pending := problemOfKeys{say: say,
		impact: "These clients are NOT SENT, or UNCONFIRMED if they have an older version. gRPC and Envoy give up waiting after 15 seconds.",
		next:   "Look whether the origin has these resources for the node that relay keys -o wide shows, and whether clients ask for the right names."}
	for i := range keys {
		k := &keys[i]
		for _, s := range k.Silent() {
			silent.add(k, s, s.Since)
		}
		for j := range k.Suspended {
			suspended.add(k, &k.Suspended[j], k.Suspended[j].Since)
		}
		for j := range k.FrequentEnds {
			ends.add(k, &k.FrequentEnds[j], k.FrequentEnds[j].Since)
		}
		for j := range k.Types {
			if p := k.Types[j].Unanswered; p != nil {
				pending.add(k, p, p.Since)
			}
		}
	}
	for _, p := range []*problemOfKeys{&silent, &suspended, &ends, &pending} {
		p.rest()
	}
}

// problemOfKeys is a problem that several keys may have.
type problemOfKeys struct {
	say          func(overview.Problem)
	impact, next string
	n            int
}

func (p *problemOfKeys) add(k *keystatus.Key, what fmt.Stringer, since time.Time) {
	if p.n++; p.n <= maxKeysShown {
		p.say(overview.Problem{Text: fmt.Sprintf("key %s: %s", k.Key, what), Key: k.Key, Since: since, Impact: p.impact, Next: p.next})
	}
}

// rest reports how many more there are.
func (p *problemOfKeys) rest() {
	if more := p.n - maxKeysShown; more > 0 {
		p.say(overview.Problem{Text: fmt.Sprintf("%s of this kind, which relay keys shows", spelling.Counted(more, "further problem")), Impact: p.impact, Next: p.next})
	}
}
