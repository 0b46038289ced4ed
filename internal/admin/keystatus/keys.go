package keystatus

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Key is one key in use.
type Key struct {
	Key      string   `json:"key"`
	Elements []string `json:"elements"`
	// Members counts the types of all streams: a client with clusters and endpoints under
	// the key counts twice. Clients counts streams, and clients that poll: see Count.
	Members int `json:"members"`
	Clients int `json:"clients"`
	// Node and UserAgent are the representative's. OtherUserAgents counts the members with another
	// user agent (P58).
	Node            string `json:"node"`
	UserAgent       string `json:"user_agent,omitempty"`
	OtherUserAgents int    `json:"other_user_agents"`
	// Mixed: the members differ in the name of their user agent; nil: they do not (P58).
	Mixed      *orchestrator.MixedUserAgents `json:"-"`
	Since      time.Time                     `json:"since"`
	IdleSince  time.Time                     `json:"idle_since,omitzero"`
	Generation uint64                        `json:"generation"`
	// Role is what this relay is for the key, and Owner the member that owns it; empty: the relay is in
	// no cluster. Upstream.Origin may be a member.
	Role     string        `json:"role,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	Types    []TypeSummary `json:"types"`
	Upstream Upstream      `json:"upstream"`
	// Second is the second upstream stream, while there is one (P50: a type that is
	// subscribed by wildcard and by names needs two).
	Second *Upstream `json:"second_upstream,omitempty"`
	// Refused is why clients are refused (P53: nothing that they request is held, and no origin can
	// be reached).
	Refused string `json:"refused,omitempty"`
	// Suspended is what clients want and the key's stream does not carry, because the origin ends
	// each stream with it (P68).
	Suspended []Suspended `json:"suspended,omitempty"`
	// FrequentEnds are the upstream streams that end again and again, at an origin that is not
	// away.
	FrequentEnds []FrequentEnds `json:"frequent_ends,omitempty"`
	// Differences is in what the nodes of the clients differ. A list of keys has it only on demand.
	Differences *Differences `json:"node_differences,omitempty"`
	// NacksTotal counts all NACKs. Nacks are those that are kept, the newest first; a list
	// of keys does not have them.
	NacksTotal uint64         `json:"nacks_total"`
	Nacks      []history.Nack `json:"nacks,omitempty"`
}

// Differences says in what the nodes of a key's clients differ, apart from their ids. If an origin looks
// at such a field, the rule is too coarse.
type Differences struct {
	Nodes  int              `json:"nodes"` // that were compared
	Fields []DifferingField `json:"fields,omitempty"`
	More   int              `json:"more_fields,omitempty"` // that differ
}

// DifferingField is a field of a node with several values: locality.zone, metadata.NAMESPACE.
type DifferingField struct {
	Field  string `json:"field"`
	Values int    `json:"values"`
	More   bool   `json:"more,omitempty"` // there are more values
}

// maxFieldsShown bounds the fields in a text.
const maxFieldsShown = 6

// String is "locality.zone: 3 values, metadata.NAMESPACE: 4 values"; "": nothing differs.
func (d *Differences) String() string {
	var b strings.Builder
	rest := d.More
	for i, f := range d.Fields {
		if i == maxFieldsShown {
			rest += len(d.Fields) - i
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		more := ""
		if f.More {
			more = "+"
		}
		fmt.Fprintf(&b, "%s: %d%s values", f.Field, f.Values, more)
	}
	if rest > 0 {
		fmt.Fprintf(&b, " and %d more fields", rest)
	}
	return b.String()
}

// Disconnected reports whether the key has clients and no stream to an origin.
func (k *Key) Disconnected() bool { return !k.Upstream.Connected && k.Members > 0 }

// WorstPlace is the key's place in a list that has the worst first: keys whose clients reject something,
// keys with a problem, keys whose clients wait, and the others. Count has to be called before.
func (k *Key) WorstPlace() string {
	of := func(state string) (n int) {
		for i := range k.Types {
			n += k.Types[i].States[state]
		}
		return n
	}
	unanswered := func(t TypeSummary) bool { return t.Unanswered != nil }
	rank := 3
	switch {
	case of(inspect.StateNacked) > 0:
		rank = 0
	case k.Refused != "" || k.Disconnected() || len(k.Suspended) > 0 || len(k.FrequentEnds) > 0 || slices.ContainsFunc(k.Types, unanswered):
		rank = 1
	case of(inspect.StateStale)+of(inspect.StateNotSent) > 0:
		rank = 2
	}
	return fmt.Sprint(rank, " ", k.Key)
}

// TypeSummary is one type of a key: what its clients want, and what is held for them.
type TypeSummary struct {
	Type      string `json:"type"`
	Short     string `json:"short,omitempty"`
	Members   int    `json:"members"`
	Wildcard  bool   `json:"wildcard"` // requested, or lingering
	Names     int    `json:"names"`    // requested, or lingering
	Resources int    `json:"resources"`
	Bytes     int64  `json:"bytes"`
	Version   string `json:"version"`
	// OriginVersion is the version that the origin gave; empty: it gave none.
	OriginVersion string `json:"origin_version,omitempty"`
	Origin        string `json:"origin,omitempty"`
	// Generation of the key in which it last changed.
	Generation uint64 `json:"generation"`
	// Received is when the newest change came; Age is how long ago, in seconds.
	Received time.Time `json:"received,omitzero"`
	Age      float64   `json:"age_seconds,omitempty"`
	// Stale: some of it is the last known good, which the origin has not confirmed since
	// the relay started.
	Stale bool `json:"stale,omitempty"`
	// Unanswered is what the origin has not answered, although clients have waited for it for more
	// than 30 s (P57). It is absent if the whole stream is silent or closed.
	Unanswered *Unanswered `json:"unanswered,omitempty"`
	// States counts the clients in each state: see Count.
	States map[string]int `json:"states,omitempty"`
	// Versions are the newest versions, the newest first; a list of keys does not have
	// them.
	Versions []Version `json:"versions,omitempty"`
}

// Upstream is one of a key's upstream streams.
type Upstream struct {
	Connected bool   `json:"connected"`
	Origin    string `json:"origin,omitempty"`
	Error     string `json:"error,omitempty"`
	Failed    bool   `json:"failed"`
	// SilentSince is set if the stream is open and has brought no response.
	SilentSince time.Time `json:"silent_since,omitzero"`
	// Arriving is how many bytes of the first response have arrived, if it takes long; see Arrived.
	Arriving int64 `json:"arriving_bytes,omitempty"`
}

// Arrived says how much of the first response has arrived; empty: it does not arrive, or not
// slowly.
func (u *Upstream) Arrived() string {
	if u.Arriving == 0 {
		return ""
	}
	return fmt.Sprintf("answer arriving, %.1f MB so far", float64(u.Arriving)/1e6)
}

// Reader reads the status of the keys of a Registry. Use New.
type Reader struct {
	registry *orchestrator.Registry
	waiting  func() map[inspect.KeyType]inspect.Waiting
	owner    Owner
	started  time.Time
}

// Owner returns the member of the cluster that owns a key, and whether that is this relay.
type Owner func(xds.Key) (member string, self bool)

// New makes a Reader. waiting is inspect.Inspector.Waiting. owner is nil if the relay is in no cluster.
func New(r *orchestrator.Registry, waiting func() map[inspect.KeyType]inspect.Waiting, owner Owner) *Reader {
	return &Reader{registry: r, waiting: waiting, owner: owner, started: time.Now()}
}

// Keys returns all keys in use, in order, without versions and NACKs: Key has those.
func (r *Reader) Keys() []Key {
	groups := r.registry.Groups()
	now, waiting := time.Now(), r.waiting()
	out := make([]Key, 0, len(groups))
	for _, g := range groups {
		k := r.keyOf(g, waiting, now)
		k.NacksTotal = g.Nacks().Total()
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Key) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Key returns one key; false if it is not in use.
func (r *Reader) Key(key xds.Key) (Key, bool) {
	g := r.registry.Group(key)
	if g == nil {
		return Key{}, false
	}
	k := r.keyOf(g, r.waiting(), time.Now())
	for i := range k.Types {
		k.Types[i].Versions = versionsOf(g.Versions(xds.TypeURL(k.Types[i].Type)))
	}
	k.NacksTotal, k.Nacks = g.Nacks().All()
	return k, true
}

// Used reports whether a key is in use.
func (r *Reader) Used(key xds.Key) bool { return r.registry.Group(key) != nil }

// Nacks yields the NACKs that are kept of all keys: see history.History.Nacks.
func (r *Reader) Nacks(before uint64) iter.Seq[history.KeyNack] { return r.registry.Nacks(before) }

// Snapshots returns what is held of a key, type by type in the order of their first use;
// false: the key is not in use.
func (r *Reader) Snapshots(key xds.Key) ([]*snapshot.Snapshot, bool) {
	g := r.registry.Group(key)
	if g == nil {
		return nil, false
	}
	return g.Snapshots(), true
}

func (r *Reader) keyOf(g *orchestrator.Group, waiting map[inspect.KeyType]inspect.Waiting, now time.Time) Key {
	of := g.Status()
	k := Key{
		Key: of.Key.String(), Elements: of.Key.Elements(),
		Members: of.Subscribers, OtherUserAgents: of.OtherUserAgents, Mixed: of.Mixed,
		Node: of.Node.ID, UserAgent: of.Node.UserAgent,
		Since: of.Since, IdleSince: of.IdleSince,
		Types:    make([]TypeSummary, 0, len(of.Types)),
		Upstream: upstreamOf(&of.Upstreams[0]),
	}
	if r.owner != nil {
		role, owner := r.role(&of)
		k.Role, k.Owner = string(role), owner
	}
	if len(of.Upstreams) > 1 {
		second := upstreamOf(&of.Upstreams[1])
		k.Second = &second
	}
	if of.State != nil {
		k.Generation = of.State.Number
	}
	if of.Refusal != nil {
		k.Refused = redact.Text(of.Refusal.Error())
	}
	for i := range of.Suspended {
		k.Suspended = append(k.Suspended, suspendedOf(&of.Suspended[i]))
	}
	for _, e := range of.FrequentEnds {
		k.FrequentEnds = append(k.FrequentEnds, FrequentEnds{e.Origin, e.Count, e.Since, redact.Text(e.Err.Error())})
	}
	for i := range of.Types {
		t := typeOf(&of.Types[i], of.State, now)
		if w, ok := waiting[inspect.KeyType{Key: of.Key, Type: of.Types[i].Type.URL}]; ok {
			t.Unanswered = unansweredOf(&of, &of.Types[i], w)
		}
		k.Types = append(k.Types, t)
	}
	return k
}

func typeOf(of *orchestrator.TypeStatus, state *snapshot.State, now time.Time) TypeSummary {
	t := TypeSummary{Type: string(of.Type.URL), Short: of.Type.Short, Members: of.Subscribers, Wildcard: of.Wildcard, Names: of.Names.Len()}
	s := state.Snapshot(of.Type.URL)
	if s == nil {
		return t
	}
	t.Resources, t.Bytes, t.Version, t.Origin, t.Generation = s.Len(), s.Bytes, s.Version, s.Origin, s.StateNumber
	t.OriginVersion = s.OriginVersion()
	t.Stale = s.Stale
	if !s.Received.IsZero() {
		t.Received, t.Age = s.Received, now.Sub(s.Received).Seconds()
	}
	return t
}

func upstreamOf(of *upstream.Status) Upstream {
	u := Upstream{Connected: of.Connected, Origin: of.Origin, Failed: of.Failed, SilentSince: of.SilentSince, Arriving: of.Arriving}
	if of.Err != nil {
		u.Error = redact.Text(of.Err.Error())
	}
	return u
}
