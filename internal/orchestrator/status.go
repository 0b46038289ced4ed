package orchestrator

import (
	"cmp"
	"slices"
	"time"

	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// KeyStatus is one key, for people to read.
type KeyStatus struct {
	Key      string   `json:"key"`
	Elements []string `json:"elements"`
	// Members is how many types there are of streams, over all streams: a client with
	// clusters and endpoints under the key counts twice. Clients is how many streams, and
	// who polls, as Count counts them.
	Members int `json:"members"`
	Clients int `json:"clients"`
	// Node and UserAgent are the representative's; OtherUserAgents is how many
	// members have another one (P58).
	Node            string         `json:"node"`
	UserAgent       string         `json:"user_agent,omitempty"`
	OtherUserAgents int            `json:"other_user_agents"`
	Since           time.Time      `json:"since"`
	IdleSince       *time.Time     `json:"idle_since,omitempty"`
	Generation      uint64         `json:"generation"`
	Types           []TypeStatus   `json:"types"`
	Upstream        UpstreamStatus `json:"upstream"`
	// Second is the stream beside it, while there is one (P50).
	Second *UpstreamStatus `json:"second_upstream,omitempty"`
	// Refused is why clients are sent elsewhere (P53).
	Refused string `json:"refused,omitempty"`
	// NacksTotal counts all NACKs; Nacks are those kept, the newest first (P17),
	// and not in a list of keys.
	NacksTotal uint64         `json:"nacks_total"`
	Nacks      []history.Nack `json:"nacks,omitempty"`
}

// TypeStatus is one type of a key: what members want of it, and what they are
// shown.
type TypeStatus struct {
	Type      string `json:"type"`
	Short     string `json:"short,omitempty"`
	Members   int    `json:"members"`
	Wildcard  bool   `json:"wildcard"` // asked for, or lingering
	Names     int    `json:"names"`    // asked for, or lingering
	Resources int    `json:"resources"`
	Bytes     int64  `json:"bytes"`
	Version   string `json:"version"`
	// OriginVersion is what the origin calls it; empty: it does not say.
	OriginVersion string `json:"origin_version,omitempty"`
	Origin        string `json:"origin,omitempty"`
	// Generation of the key in which it last changed.
	Generation uint64 `json:"generation"`
	// Received is when the newest change came; Age is how long ago, in seconds.
	Received *time.Time `json:"received,omitempty"`
	Age      float64    `json:"age_seconds,omitempty"`
	// Stale: it is the last known good, and the origin has not spoken of all of it
	// since the relay started.
	Stale bool `json:"stale,omitempty"`
	// States are how many clients are in which, as Count counts them.
	States map[string]int `json:"states,omitempty"`
	// Versions are the newest, the newest first, and not in a list of keys.
	Versions []VersionStatus `json:"versions,omitempty"`
}

// UpstreamStatus is one of a key's upstream streams.
type UpstreamStatus struct {
	Connected bool   `json:"connected"`
	Origin    string `json:"origin,omitempty"`
	Error     string `json:"error,omitempty"`
	Failed    bool   `json:"failed"`
	Attempts  int    `json:"attempts"`
	// SilentSince: the stream is open, and nothing came on it.
	SilentSince *time.Time `json:"silent_since,omitempty"`
}

// figures are what status shows of a group's own state, published when that
// changed.
type figures struct {
	members, unlike int
	idleSince       time.Time
	types           []typeFigures // one for each view
}

type typeFigures struct {
	url      xds.TypeURL
	short    string
	members  int
	wildcard bool
	names    int
}

func (g *Group) count() *figures {
	f := &figures{members: len(g.members), unlike: g.unlike, idleSince: g.idleSince}
	for _, v := range g.views {
		f.types = append(f.types, typeFigures{v.typ.URL, v.typ.Short, v.members, v.wildcard, v.names.Len()})
	}
	return f
}

// Keys returns all keys, in order, without the NACKs that are kept: Key has
// those. It stalls no group.
func (r *Registry) Keys() []KeyStatus {
	r.mu.Lock()
	groups := make([]*Group, 0, len(r.groups))
	for _, g := range r.groups {
		groups = append(groups, g)
	}
	r.mu.Unlock()
	now := time.Now()
	out := make([]KeyStatus, 0, len(groups))
	for _, g := range groups {
		out = append(out, g.describe(now))
	}
	slices.SortFunc(out, func(a, b KeyStatus) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Key returns one key; false if it is not in use.
func (r *Registry) Key(key xds.Key) (KeyStatus, bool) {
	g := r.group(key)
	if g == nil {
		return KeyStatus{}, false
	}
	s := g.describe(time.Now())
	views := *g.types.Load()
	for i := range s.Types {
		if v := find(views, xds.TypeURL(s.Types[i].Type)); v != nil {
			s.Types[i].Versions = v.versions()
		}
	}
	s.NacksTotal, s.Nacks = g.nacks.All()
	return s, true
}

// Used reports whether a key is in use.
func (r *Registry) Used(key xds.Key) bool { return r.group(key) != nil }

// describe reads what is published. Any goroutine.
func (g *Group) describe(now time.Time) KeyStatus {
	f, state, lines := g.figures.Load(), g.state.Load(), g.lines()
	s := KeyStatus{
		Key: g.key.String(), Elements: g.key.Elements(),
		Members: f.members, OtherUserAgents: f.unlike,
		Node: g.rep.ID, UserAgent: g.rep.UserAgent,
		Since:    g.since,
		Types:    make([]TypeStatus, 0, len(f.types)),
		Upstream: lines[0].describe(),
	}
	if len(lines) > 1 {
		second := lines[1].describe()
		s.Second = &second
	}
	s.NacksTotal = g.nacks.Total()
	if !f.idleSince.IsZero() {
		s.IdleSince = &f.idleSince
	}
	if state != nil {
		s.Generation = state.Gen
	}
	if r := g.refusal.Load(); r != nil {
		s.Refused = redact.Text(r.Error())
	}
	for _, t := range f.types {
		ts := TypeStatus{Type: string(t.url), Short: t.short, Members: t.members, Wildcard: t.wildcard, Names: t.names}
		if snap := state.Snapshot(t.url); snap != nil {
			ts.Resources, ts.Bytes, ts.Version, ts.Origin, ts.Generation = snap.Len(), snap.Bytes, snap.Version, snap.Origin, snap.StateGen
			ts.OriginVersion = snap.Given()
			ts.Stale = snap.Stale
			if !snap.Received.IsZero() {
				ts.Received, ts.Age = &snap.Received, now.Sub(snap.Received).Seconds()
			}
		}
		s.Types = append(s.Types, ts)
	}
	return s
}

func (l *link) describe() UpstreamStatus {
	up := l.status.Load()
	s := UpstreamStatus{Connected: up.Connected, Origin: up.Origin, Failed: up.Failed, Attempts: up.Attempts}
	if !up.SilentSince.IsZero() {
		s.SilentSince = &up.SilentSince
	}
	if up.Err != nil {
		s.Error = redact.Text(up.Err.Error())
	}
	return s
}
