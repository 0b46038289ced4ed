package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/admin/rulestatus"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
)

// observed is what the relay's problems are found in.
type observed struct {
	now           time.Time
	state         string // one of phases
	staleTypes    int    // types of keys that are served from the last known good
	configuration Configuration
	origins       []upstream.OriginStatus
	store         *store.Status // nil: nothing is stored
	refusals      []refusal.Recent
	keys          []keystatus.Key
	rules         []aggregator.Stat
	shared        []aggregator.SharedKey
	oversized     []telemetry.TypeCount
	noNames       int // types of delta clients whose resources have no names
}

// problems lists the relay's own problems, some of which are in its keys and origins. The states of
// clients do not show them: all clients may be SYNCED while an origin is away.
func (s *Server) problems(keys []keystatus.Key, origins []upstream.OriginStatus) []overview.Problem {
	o := observed{
		now: time.Now(), state: phases[s.phase.Load()], staleTypes: s.opts.Metrics.Stale.Value(),
		origins: origins, store: s.store(), refusals: s.opts.Clients.RecentRefusals(), keys: keys,
		rules: s.opts.Rules().Stats(), shared: s.opts.Rules().Shared(), oversized: s.opts.Metrics.Oversized(),
		noNames: s.opts.Metrics.Unanswered(telemetry.NoNames).Value(),
	}
	if s.opts.Configuration != nil {
		o.configuration = s.opts.Configuration()
	}
	return append(o.problems(), s.opts.Problems()...)
}

// withoutOrigin counts the clients of keys without a stream to an origin. If others is true, another
// origin may serve a key, so it counts only keys that tried the origin name last. It takes the type
// that most clients of a key request, and counts those clients.
func (o *observed) withoutOrigin(name string, others bool) (clients int) {
	for i := range o.keys {
		k := &o.keys[i]
		if k.Upstream.Connected || others && k.Upstream.Origin != name {
			continue
		}
		most := 0
		for j := range k.Types {
			most = max(most, k.Types[j].Members)
		}
		clients += most
	}
	return clients
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
		if o.origins[i].Away {
			say(o.away(&o.origins[i]))
		}
		sources.OriginProblems(&o.origins[i], say)
	}
	if n := o.staleTypes; n > 0 {
		say(overview.Problem{Text: fmt.Sprintf("the relay serves %s from the last known good: no origin has answered for %s since the relay started", spelling.Counted(n, "type"), them(n)),
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
	sources.KeyProblems(o.keys, say)
	rulestatus.KeyProblems(o.keys, o.shared, say)
	for _, t := range o.oversized {
		say(overview.Problem{Text: fmt.Sprintf("%s responses are too large to be sent to %s", t.Type, spelling.Counted(t.Clients, "client")),
			Impact: "These clients keep the version that they have. New clients do not get the type.",
			Next:   "Make the response smaller at the origin, or use delta clients."})
	}
	if n := o.noNames; n > 0 {
		say(overview.Problem{Text: fmt.Sprintf("the origin's resources have no names for %s of delta clients", spelling.Counted(n, "type")),
			Impact: "These clients get no response for the type.", Next: "Use SotW clients, or an origin that names the resources. The log names the types (reason no_names)."})
	}
	rulestatus.FailingRules(o.rules, o.now, say)
	if keys := o.configuration.NeedsRestart; len(keys) > 0 {
		say(overview.Problem{Severity: overview.Warning, Text: "the configuration file has new values that need a restart: " + strings.Join(keys, ", "),
			Impact: "The previous values of these settings stay in force.", Next: "Restart the relay when it suits you."})
	}
	return out
}

// fileProblems reports faults of the configuration file and of the files that it names.
func (o *observed) fileProblems(say func(overview.Problem)) {
	switch r := o.configuration.Rejected; {
	case r == nil:
	case r.NeedsForce:
		say(overview.Problem{Text: "the configuration file is not in force: " + strings.Join(r.Faults, "; "), Since: r.At,
			Impact: "The previous configuration stays in force. A restart would apply the file.",
			Next:   "List these clients with relay explain --diff. Correct the rules, or run relay reload --force."})
	default:
		say(overview.Problem{Text: "the configuration file has faults and is not in force: " + strings.Join(r.Faults, "; "), Since: r.At,
			Impact: "The previous configuration stays in force. A restart would fail.", Next: "Repair the file. Test it with relay validate."})
	}
	for _, f := range o.configuration.RejectedFiles {
		say(overview.Problem{Text: fmt.Sprintf("%s: its new content cannot be used: %s", f.Of, f.Error), Since: f.Since,
			Impact: "The previous content stays in force. Once an old certificate has expired, the other side rejects the relay.", Next: "Repair it. The relay reads it again by itself."})
	}
}

// certificateProblems reports certificates that are not valid yet, have expired or expire soon.
func (o *observed) certificateProblems(say func(overview.Problem)) {
	for _, c := range o.configuration.Certificates {
		p := overview.Problem{Next: "Renew its files. The relay reads them by itself."}
		at := c.Expires.Format(time.RFC3339)
		switch {
		case o.now.Before(c.From):
			p.Text = fmt.Sprintf("the certificate of %s is not valid before %s", c.Of, c.From.Format(time.RFC3339))
			p.Impact = "Until then " + rejecters(c.Of)
			p.Next = "Check the clock of this host and of the host that issued it, or renew its files."
		case c.Expired(o.now):
			p.Text = fmt.Sprintf("the %s of %s expired at %s", c.Name(), c.Of, at)
			p.Impact, p.Since = "Since then "+rejecters(c.Of), c.Expires
		case c.Soon(o.now):
			p.Severity, p.Text = overview.Warning, fmt.Sprintf("the %s of %s expires at %s, in %s", c.Name(), c.Of, at, c.Left(o.now))
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
		return "browsers reject the admin address, and so do commands without the relay's configuration."
	case of == "cluster.tls":
		return "the other members and the relay do not use each other: each asks the origins itself."
	case strings.HasPrefix(of, "origin "):
		return "the origin rejects the relay, and no changes arrive from it."
	}
	return "clients cannot connect. Connected ones are disconnected at downstream.max_connection_age."
}

// away is the problem of an origin that is away. Its impact says how many clients are served
// without an origin, and how many were refused.
func (o *observed) away(at *upstream.OriginStatus) overview.Problem {
	p := overview.Problem{Text: fmt.Sprintf("origin %s is away: %s", at.Name, at.LastError), Since: at.AwaySince,
		Next: "Check that the origin runs, and that this host reaches " + at.Address + "."}
	if at.Reached.IsZero() {
		p.Text = fmt.Sprintf("origin %s has never been reached: %s", at.Name, at.LastError)
		p.Next = "Check the address " + at.Address + " and the tls of this origin in the configuration. Then check that the origin runs."
	}
	if strings.Contains(at.LastError, "code = PermissionDenied") || strings.Contains(at.LastError, "code = Unauthenticated") {
		p.Next = "The origin answers, and refuses the relay. Read the origin's log. Check the certificate and token that the relay sends, and upstream.node."
	}
	if strings.HasPrefix(at.Address, "file:") {
		p.Next = "Check that the directory exists, and that relay validate finds no fault in its files. The relay reads it again by itself."
	}
	refused, others := 0, slices.ContainsFunc(o.origins, func(x upstream.OriginStatus) bool { return !x.Away })
	for _, r := range o.refusals {
		if r.Reason == string(telemetry.OriginUnreachable) {
			refused = r.Count
		}
	}
	var impact []string
	if n := o.withoutOrigin(at.Name, others); n > 0 {
		impact = append(impact, fmt.Sprintf("The relay serves %s from what it has. No changes arrive for %s.", spelling.Counted(n, "client"), them(n)))
	}
	switch {
	case others && impact == nil:
		impact = append(impact, "None for clients now: the relay uses another origin.")
	case others:
	case refused > 0:
		impact = append(impact, fmt.Sprintf("The relay refused clients %s in the last minute, because it has nothing for them.", spelling.Counted(refused, "time")))
	default:
		impact = append(impact, "The relay refuses new clients for which it has nothing.")
	}
	p.Impact = strings.Join(impact, " ")
	return p
}

func refusalProblem(r *refusal.Recent) overview.Problem {
	if r.Reason == string(telemetry.Report) {
		return overview.Problem{Severity: overview.Warning, Last: r.At,
			Text:   fmt.Sprintf("the relay dropped %s of clients in the last minute, last node %s: %s", spelling.Counted(r.Count, "report"), r.Node, r.Error),
			Impact: "The origin does not learn the health of these machines.", Next: "Let machines that report their health connect to the origin directly."}
	}
	of := ""
	if r.Key == "" && r.Node != "" { // the error of a refused key names the key
		of = ", last node " + r.Node
	}
	text := fmt.Sprintf("the relay refused or ended %s in the last minute", spelling.Counted(r.Count, "stream"))
	impact := "Refused clients get nothing from this relay. A client that has a configuration keeps it."
	switch r.Reason {
	case string(telemetry.Handshake), string(telemetry.Protocol), string(telemetry.Pings):
		text = fmt.Sprintf("the relay refused or ended %s in the last minute", spelling.Counted(r.Count, "connection"))
	case string(telemetry.LimitConnections), string(telemetry.OpenFiles):
		text, impact = "connections of clients wait", "These clients get nothing from this relay until others leave."
	}
	return overview.Problem{
		Text:   fmt.Sprintf("%s; reason %s%s: %s", text, r.Reason, of, r.Error),
		Impact: impact,
		Last:   r.At,
		Next:   fmt.Sprintf("Look up the reason %s in docs/operations.md, \"Why clients are refused\".", r.Reason),
	}
}

// them is the pronoun for n things.
func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
