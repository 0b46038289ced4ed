package admin

import (
	"fmt"
	"strings"
	"time"

	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// observed is what the relay's problems are found in.
type observed struct {
	now           time.Time
	state         string // one of phases
	staleTypes    int    // types of keys that are served from the last known good
	configuration Configuration
	origins       []origin
	store         *storeInfo // nil: nothing is stored
	refusals      []refusal.Recent
	rules         []aggregator.Stat
	oversized     []telemetry.TypeCount
}

// problems lists the relay's own problems. The states of clients do not show them: all clients may
// be SYNCED while an origin is away.
func (s *Server) problems() []overview.Problem {
	o := observed{
		now: time.Now(), state: phases[s.phase.Load()], staleTypes: s.opts.Metrics.Stale.Value(),
		origins: s.origins(), store: s.storeInfo(), refusals: s.opts.Clients.RecentRefusals(),
		rules: s.opts.Rules().Stats(), oversized: s.opts.Metrics.Oversized(),
	}
	if s.opts.Configuration != nil {
		o.configuration = s.opts.Configuration()
	}
	return o.problems()
}

// problems returns the problems in the order in which an operator should look at them: those that
// explain others come first.
func (o *observed) problems() []overview.Problem {
	out := []overview.Problem{}
	say := func(p overview.Problem) {
		if p.Severity == "" {
			p.Severity = overview.Error
		}
		out = append(out, p)
	}
	if o.state != phases[serving] {
		say(overview.Problem{Severity: overview.Warning, Text: "the relay is " + o.state,
			Impact: "It accepts no new clients.", Next: "If this lasts for minutes, read the relay's log."})
	}
	o.fileProblems(say)
	o.certificateProblems(say) // before the refusals of clients that reject the certificate
	for i := range o.origins {
		o.origins[i].problems(say)
	}
	if n := o.staleTypes; n > 0 {
		say(overview.Problem{Text: fmt.Sprintf("the relay serves %s from the last known good: no origin has answered for %s since the relay started", counted(n, "type"), them(n)),
			Impact: "Clients get stored configuration, which may be old.", Next: "Find out why the origins do not answer."})
	}
	if st := o.store; st != nil && st.Off {
		say(overview.Problem{Text: fmt.Sprintf("the store %s is off: %s", st.Path, st.LastError),
			Impact: "The relay stores no changes. After a restart it may have old configuration or none until an origin answers.",
			Next:   "Repair the directory. The relay tries it again each minute."})
	}
	for _, r := range o.refusals {
		say(refusalProblem(&r))
	}
	for _, t := range o.oversized {
		say(overview.Problem{Text: fmt.Sprintf("%s responses are too large to be sent to %s", t.Type, counted(t.Clients, "client")),
			Impact: "These clients keep the version that they have. New clients do not get the type.",
			Next:   "Make the response smaller at the origin, or use delta clients."})
	}
	o.ruleProblems(say)
	if keys := o.configuration.NeedsRestart; len(keys) > 0 {
		say(overview.Problem{Severity: overview.Warning, Text: "the configuration file has new values that need a restart: " + strings.Join(keys, ", "),
			Impact: "The previous values of these keys stay in force.", Next: "Restart the relay when it suits you."})
	}
	return out
}

// ruleProblems is that rules fail for some nodes.
func (o *observed) ruleProblems(say func(overview.Problem)) {
	var failing []string
	for _, r := range o.rules {
		if r.Errors > 0 {
			failing = append(failing, fmt.Sprintf("%s (%s)", r.Rule, r.Place))
		}
	}
	if len(failing) > 0 {
		say(overview.Problem{Severity: overview.Warning, Text: "the match of these rules fails for some nodes: " + strings.Join(failing, ", "),
			Impact: "The rule does not match these nodes. They may get another key, and so other resources.",
			Next:   "Test the field with has() in the rule."})
	}
}

// fileProblems are those of the configuration file and of the files that it names.
func (o *observed) fileProblems(say func(overview.Problem)) {
	if r := o.configuration.Rejected; r != nil {
		say(overview.Problem{Text: "the configuration file has faults and is not in force: " + strings.Join(r.Faults, "; "), Since: &r.At,
			Impact: "The previous configuration stays in force. A restart would fail.", Next: "Repair the file. Test it with relay validate."})
	}
	for _, f := range o.configuration.RejectedFiles {
		say(overview.Problem{Text: fmt.Sprintf("%s: the changed file cannot be used: %s", f.Of, f.Error), Since: &f.Since,
			Impact: "The previous content stays in force. A certificate stays in use until it expires.", Next: "Repair the file. The relay reads it again by itself."})
	}
}

// certificateProblems are those of certificates that have expired or expire soon.
func (o *observed) certificateProblems(say func(overview.Problem)) {
	for _, c := range o.configuration.Certificates {
		p := overview.Problem{Next: "Renew its files. The relay reads them by itself."}
		at := c.Expires.Format(time.RFC3339)
		switch {
		case c.Expired(o.now):
			p.Text = fmt.Sprintf("the %s of %s expired at %s", c.Name(), c.Of, at)
			p.Impact, p.Since = "Since then "+rejecters(c.Of), &c.Expires
		case !o.now.Before(c.Expires.Add(-tlsfiles.Soon)):
			p.Severity, p.Text = overview.Warning, fmt.Sprintf("the %s of %s expires at %s", c.Name(), c.Of, at)
			p.Impact = "From then on " + rejecters(c.Of)
		default:
			continue
		}
		say(p)
	}
}

// rejecters says which programs reject an expired certificate.
func rejecters(of string) string {
	switch {
	case of == "admin.tls":
		return "the relay's commands and browsers reject the admin address."
	case strings.HasPrefix(of, "origin "):
		return "the origin rejects the relay, and no changes arrive from it."
	}
	return "clients cannot connect. Connected ones are disconnected at downstream.max_connection_age."
}

func (o *origin) problems(say func(overview.Problem)) {
	if o.Away {
		say(overview.Problem{Text: fmt.Sprintf("origin %s is away: %s", o.Name, o.LastError), Since: o.AwaySince,
			Impact: "Clients keep their configuration. Unless another origin serves, no changes arrive.",
			Next:   "Check that the origin runs, and that this host reaches " + o.Address + "."})
	}
	if o.Silent > 0 {
		say(overview.Problem{Text: fmt.Sprintf("origin %s does not answer on %s", o.Name, counted(o.Silent, "stream")), Since: o.SilentSince,
			Impact: "Clients of these keys get no changes. New clients may wait.",
			Next:   "Read the origin's log: it accepted the streams."})
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

func refusalProblem(r *refusal.Recent) overview.Problem {
	of := ""
	switch {
	case r.Key != "":
		of = ", key " + r.Key
	case r.Node != "":
		of = ", last node " + r.Node
	}
	what := "stream"
	if r.Reason == telemetry.Handshake.String() {
		what = "connection"
	}
	p := overview.Problem{
		Text:   fmt.Sprintf("the relay refused or ended %s in the last minute; reason %s%s: %s", counted(r.Count, what), r.Reason, of, r.Error),
		Impact: "These clients keep the configuration that they have and get no changes from this relay.",
		Next:   fmt.Sprintf("Look up the reason %s in docs/operations.md, \"Why clients are refused\".", r.Reason),
	}
	if at := r.At; at != (time.Time{}) {
		p.Last = &at
	}
	return p
}

// counted writes a number and a noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// them is the pronoun for n things.
func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
