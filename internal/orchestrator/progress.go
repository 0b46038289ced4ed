package orchestrator

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// Awaited is a version for which somebody waits.
type Awaited struct {
	Key     xds.Key
	Type    xds.TypeURL
	Version string // the relay's, the origin's, or that of the content
	// Mark is that of the answer before; empty: the waiting begins.
	Mark string
	// OrNewer takes also what came after the version, whatever it is and whenever it
	// came.
	OrNewer bool
}

// Progress is how far a version of a type has come.
type Progress struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Version string `json:"version"` // as it was asked for
	// InUse: the relay has the key. One that no client has, or had lately, is none.
	InUse bool `json:"key_in_use"`
	// Known: the version counts, since it is the newest, or was at some time since the
	// waiting began. One that was replaced before that does not count until it comes
	// again.
	Known bool `json:"known"`
	// SupersededBy is the newest version, empty while that is the version itself or the
	// version never came. A client that acknowledged it has the version as well.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Mark says since when is waited, and what came since: to be given along with the
	// next question. It is good for as long as the relay runs.
	Mark string `json:"mark"`
	// Newest is the newest version, and what the origin calls it.
	Newest       string `json:"newest_version,omitempty"`
	NewestOrigin string `json:"newest_origin_version,omitempty"`
	// Clients are those of the key and type: Reached acknowledged the version or something
	// newer, or nothing in it is for them; Refusing refused it, and no response is to come
	// that may end that; the rest is Pending. Of a version that is not known all are. A node
	// that has several streams of the type, or that polls for several lists of names, is
	// one, and counts as the one of them that is furthest behind.
	Clients  int     `json:"clients"`
	Reached  int     `json:"reached"`
	Refusing int     `json:"refusing"`
	Pending  int     `json:"pending"`
	Percent  float64 `json:"percent"` // 0 without clients
	// Laggard is the pending client that has stood where it stands for longest,
	// Refuser such a one of those that refuse.
	Laggard *Laggard `json:"laggard,omitempty"`
	Refuser *Laggard `json:"refuser,omitempty"`
	// Started is when the relay did. Draining: it is ending, and sends its clients
	// away, so that those who are left are nobody's measure.
	Started  time.Time `json:"started,omitzero"`
	Draining bool      `json:"draining,omitempty"`
}

// Progress says how far a version has come. standings gives those that are wanted,
// as fanout.Server.Standings.
func (r *Registry) Progress(of Awaited, standings func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[fanout.Standing]) Progress {
	p := Progress{Key: of.Key.String(), Type: string(of.Type), Version: of.Version, Started: r.started}
	in := r.find(&p, &of)
	nodes := make(map[whose]decision)
	for at := range standings(func(k xds.Key, t xds.TypeURL) bool { return k == of.Key && t == of.Type }) {
		is := pending
		if p.Known {
			is = evaluate(&at, in)
		}
		switch {
		case is == refusing:
			p.Refuser = older(p.Refuser, &at)
		case is == pending && p.Known:
			p.Laggard = older(p.Laggard, &at)
		}
		who := whoseIs(&at)
		if was, more := nodes[who]; !more || is.worse(was) {
			nodes[who] = is
		}
	}
	for _, is := range nodes {
		switch is {
		case inStep:
			p.Reached++
		case refusing:
			p.Refusing++
		default:
			p.Pending++
		}
	}
	p.Clients = len(nodes)
	if p.Clients > 0 {
		p.Percent = 100 * float64(p.Reached) / float64(p.Clients)
	}
	return p
}

// whose tells nodes apart: names are not always given once only.
type whose struct {
	node, host string
	stream     uint64 // of one without a name
}

func whoseIs(at *fanout.Standing) whose {
	if at.Node == "" {
		return whose{stream: at.Stream}
	}
	return whose{node: at.Node, host: at.Host}
}

// find finds the version, and its generations.
func (r *Registry) find(p *Progress, of *Awaited) (in generations) {
	m, begun := r.unmark(of.Mark)
	defer func() { p.Mark = r.mark(m) }()
	g := r.group(of.Key)
	if g == nil {
		return in
	}
	p.InUse = true
	v := find(*g.types.Load(), of.Type)
	if v == nil {
		return in
	}
	all := v.history.Versions() // first, so that held is not older than it
	newest := v.held.Load()
	if newest == nil || len(all) == 0 {
		return in
	}
	p.Newest, p.NewestOrigin = newest.Version, newest.Given()
	if m.lineage != newest.Lineage { // all of it came since the waiting began, if it has
		m = mark{lineage: newest.Lineage}
		if !begun {
			m.since = all[0].Newest()
		}
	}
	at := slices.IndexFunc(all, func(o *xds.VersionProgress) bool { return o.Is(of.Version) })
	if at >= 0 && (at == 0 || of.OrNewer || all[at].Newest() > m.since) {
		m.found = all[at].Newest()
	}
	if p.Known = m.found > 0; p.Known { // also if it is forgotten meanwhile
		in = generations{m.lineage, m.found, m.found, m.found}
		at = slices.IndexFunc(all, func(o *xds.VersionProgress) bool { return o.First <= m.found && m.found <= o.Newest() })
		if at >= 0 {
			in = generationsOf(all, at)
			in.has = m.found
		}
	}
	if at > 0 || at < 0 && p.Known {
		p.SupersededBy = cmp.Or(all[0].Given, all[0].Version)
	}
	return in
}

// mark is what a client of /progress remembers for the relay.
type mark struct {
	lineage uint64
	since   uint64 // the generation that was the newest as the waiting began
	found   uint64 // the version's; 0: it has not been the newest since
}

func (r *Registry) mark(m mark) string {
	return fmt.Sprintf("%x-%x-%x-%x", r.started.UnixNano(), m.lineage, m.since, m.found)
}

// unmark reads a mark that this process made. That of another says nothing of what
// has come here: the waiting begins anew.
func (r *Registry) unmark(text string) (m mark, begun bool) {
	var started int64
	n, err := fmt.Sscanf(text, "%x-%x-%x-%x", &started, &m.lineage, &m.since, &m.found)
	if err != nil || n != 4 || started != r.started.UnixNano() {
		return mark{}, false
	}
	return m, true
}

// group returns the group of a key; nil if it is not in use.
func (r *Registry) group(key xds.Key) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[key]
}
