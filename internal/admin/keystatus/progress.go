package keystatus

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Awaited is a version that an operator waits for.
type Awaited struct {
	Key     xds.Key
	Type    xds.TypeURL
	Version string // the relay's name of it, the origin's, or that of the content
	// Mark is the Mark of the previous Progress; empty: the wait begins.
	Mark string
	// OrNewer also accepts any version that came after it, at any time.
	OrNewer bool
}

// Progress says how many clients have a version of a type.
type Progress struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Version string `json:"version"` // as in the request
	// InUse: the relay has the key, because a client has or had it recently.
	InUse bool `json:"key_in_use"`
	// Known: the version is the newest, or was at some time since the wait began. One that
	// was replaced before the wait began is not known until it comes again.
	Known bool `json:"known"`
	// SupersededBy is the newest version; empty if that is the version itself, or if the
	// version never came. A client that acknowledged it counts as having the version.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Mark encodes when the wait began and what came since. The next request has to repeat
	// it. It is valid for as long as the relay runs.
	Mark string `json:"mark"`
	// Newest is the newest version, as clients get it. NewestOrigin is the one that the origin gave.
	Newest       string `json:"newest_version,omitempty"`
	NewestOrigin string `json:"newest_origin_version,omitempty"`
	// Clients counts the clients of the key and type. Reached counts those that acknowledged the
	// version or something newer, or for which it has nothing. Nacking counts those that NACKed it,
	// if no response that could change that is on its way. The others are Pending; all clients are
	// if the version is not known. A node that has several streams of the type, or that polls for
	// several lists of names, counts once, in the worst of its states. Of streams with the same names
	// on several connections, only the newest counts: the node may have lost the other connections.
	Clients int     `json:"clients"`
	Reached int     `json:"reached"`
	Nacking int     `json:"nacking"`
	Pending int     `json:"pending"`
	Percent float64 `json:"percent"` // 0 without clients
	// Laggard is the pending client that has been in its state for longest. NackingClient is the
	// same of the clients that NACKed the version.
	Laggard       *Laggard `json:"laggard,omitempty"`
	NackingClient *Laggard `json:"nacking_client,omitempty"`
	// Started is when the relay started. Draining: it ends the streams of its clients, so the
	// remaining clients say nothing about the version.
	Started  time.Time `json:"started,omitzero"`
	Draining bool      `json:"draining,omitempty"`
}

// Progress says how many clients have a version. states returns the states of the wanted keys
// and types, as fanout.Server.TypeStates does.
func (r *Reader) Progress(of Awaited, states func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState]) Progress {
	p := Progress{Key: of.Key.String(), Type: string(of.Type), Version: of.Version, Started: r.started}
	in := r.find(&p, &of)
	decisive := make(map[requested]counted)
	for at := range states(func(k xds.Key, t xds.TypeURL) bool { return k == of.Key && t == of.Type }) {
		c := counted{conn: at.Conn, Laggard: laggardOf(&at)}
		if p.Known {
			c.state = versionStateOf(&at, in)
		}
		s := requested{nodeOf(&at), at.Names}
		if was, more := decisive[s]; !more || c.counts(was) {
			decisive[s] = c
		}
	}
	nodes := make(map[node]versionState)
	for s, c := range decisive {
		switch {
		case c.state == nacking:
			p.NackingClient = older(p.NackingClient, c.Laggard)
		case c.state == pending && p.Known:
			p.Laggard = older(p.Laggard, c.Laggard)
		}
		if was, more := nodes[s.node]; !more || c.state.worse(was) {
			nodes[s.node] = c.state
		}
	}
	for _, is := range nodes {
		switch is {
		case inStep:
			p.Reached++
		case nacking:
			p.Nacking++
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

// node identifies a node. Two hosts may use the same id.
type node struct {
	id, host string
	stream   uint64 // of a node without an id
}

func nodeOf(at *inspect.TypeState) node {
	if at.Node == "" {
		return node{stream: at.Stream}
	}
	return node{id: at.Node, host: at.Host}
}

// requested is what a node requests of the type.
type requested struct {
	node
	names uint64
}

// counted is the stream or poll that decides for what a node requests.
type counted struct {
	state versionState
	conn  any
	Laggard
}

// counts reports whether c decides, and not was: it is newer and on another connection, or it is in
// a worse state and on the same one.
func (c counted) counts(was counted) bool {
	if c.conn != was.conn {
		return c.Stream > was.Stream
	}
	return c.state.worse(was.state)
}

// find looks the version up, fills in what p says about it, and returns its generations.
func (r *Reader) find(p *Progress, of *Awaited) (in generations) {
	m, begun := r.unmark(of.Mark)
	defer func() { p.Mark = r.mark(m) }()
	g := r.registry.Group(of.Key)
	if g == nil {
		return in
	}
	p.InUse = true
	all := g.Versions(of.Type) // before Newest, so that no version is newer than what is held
	newest := g.Newest(of.Type)
	if newest == nil || len(all) == 0 {
		return in
	}
	p.Newest, p.NewestOrigin = newest.Version, newest.OriginVersion()
	if m.lineage != newest.Lineage { // if the wait has begun, all versions came since
		m = mark{lineage: newest.Lineage}
		if !begun {
			m.since = all[0].Newest()
		}
	}
	at := slices.IndexFunc(all, func(o *snapshot.VersionProgress) bool { return o.Matches(of.Version) })
	if at >= 0 && (at == 0 || of.OrNewer || all[at].Newest() > m.since) {
		m.found = all[at].Newest()
	}
	if p.Known = m.found > 0; p.Known { // even if the version is not remembered any more
		in = generations{m.lineage, m.found, m.found, m.found}
		at = slices.IndexFunc(all, func(o *snapshot.VersionProgress) bool { return o.First <= m.found && m.found <= o.Newest() })
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

// mark is what a client of /progress repeats in its next request.
type mark struct {
	lineage uint64
	since   uint64 // the newest generation when the wait began
	found   uint64 // the generation of the version; 0: it has not been the newest since
}

func (r *Reader) mark(m mark) string {
	return fmt.Sprintf("%x-%x-%x-%x", r.started.UnixNano(), m.lineage, m.since, m.found)
}

// unmark reads a mark. With the mark of another process the wait begins anew, because that
// mark says nothing about this process' generations.
func (r *Reader) unmark(text string) (m mark, begun bool) {
	var started int64
	n, err := fmt.Sscanf(text, "%x-%x-%x-%x", &started, &m.lineage, &m.since, &m.found)
	if err != nil || n != 4 || started != r.started.UnixNano() {
		return mark{}, false
	}
	return m, true
}
