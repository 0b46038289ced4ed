package orchestrator

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// VersionStatus is how a version of a key's type came to the clients.
type VersionStatus struct {
	Version string `json:"version"`
	// OriginVersion is what the origin called it; empty: it did not say. ContentVersion
	// is what it is called by its content alone, of all that came of it.
	OriginVersion  string    `json:"origin_version,omitempty"`
	ContentVersion string    `json:"content_version"`
	Generation     uint64    `json:"generation"` // of the key, in which it came
	Received       time.Time `json:"received"`
	Changed        int64     `json:"changed"` // resources
	Removed        int64     `json:"removed"`
	// Sent, Acked and RefusedBy count streams since it came, those that have gone
	// included, each once. A client that it does not concern is sent nothing.
	Sent      uint32 `json:"sent"`
	Acked     uint32 `json:"acknowledged"`
	RefusedBy uint32 `json:"refused"`
	// Clients are those of now: InStep acknowledged it or something newer, or nothing in it
	// is for them; Refusing refused it; the rest is Pending.
	Clients  int `json:"clients"`
	InStep   int `json:"in_step"`
	Refusing int `json:"refusing"`
	Pending  int `json:"pending"`
	// P50 and P99 are the seconds from its coming to a stream's first ACK of it, of the
	// streams that were there when it came; Took the numbers from which they are computed.
	P50  float64  `json:"ack_seconds_p50,omitempty"`
	P99  float64  `json:"ack_seconds_p99,omitempty"`
	Took []Bucket `json:"ack_seconds,omitempty"`
	// Laggard is the pending client that has stood where it stands for longest.
	Laggard *Laggard `json:"laggard,omitempty"`

	in generations
}

// Bucket counts ACKs that came within so many seconds, and not within those of the
// one before; AtMost 0: later than all.
type Bucket struct {
	AtMost float64 `json:"at_most"`
	Count  uint32  `json:"count"`
}

// Laggard is a client that is behind.
type Laggard struct {
	Node   string    `json:"node"`
	Stream uint64    `json:"stream"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
}

// versions are the newest of a type, the newest first, without what is known of
// clients only.
func (v *view) versions() []VersionStatus {
	all := v.history.Versions()
	out := make([]VersionStatus, 0, len(all))
	for i, r := range all {
		c := r.Counts()
		s := VersionStatus{
			Version: r.Version, OriginVersion: r.Given, ContentVersion: r.Content().String(),
			Generation: r.StateGen, Received: r.At, Changed: c.Changed, Removed: c.Removed,
			Sent: c.Sent, Acked: c.Acked, RefusedBy: c.Refused,
			P50: c.Quantile(.5).Seconds(), P99: c.Quantile(.99).Seconds(),
			in: generationsOf(all, i),
		}
		for i, n := range c.Took {
			if n > 0 {
				s.Took = append(s.Took, Bucket{xds.AckBound(i).Seconds(), n})
			}
		}
		out = append(out, s)
	}
	return out
}

// generations are those of a version of a type.
type generations struct {
	lineage uint64
	has     uint64 // a client that has this one has the version
	// A client that refuses one of these refuses the version.
	first, last uint64
}

// generationsOf are those of the version all[at]; all are those of a type, the newest first.
func generationsOf(all []*xds.VersionProgress, at int) generations {
	g := generations{lineage: all[at].Lineage, has: all[at].Newest(), first: all[at].First, last: math.MaxUint64}
	if at > 0 && all[at-1].Lineage == g.lineage {
		g.last = all[at-1].First - 1
	}
	return g
}

// decision is what a standing means for a version.
type decision uint8

const (
	pending decision = iota
	inStep
	refusing
)

// evaluate says what a standing means for a version. A refusal counts only if it names the
// version and is final. Any other refusal that stands keeps Has below what was refused.
func evaluate(at *fanout.Standing, of generations) decision {
	switch n := at.Nack; {
	case at.Lineage != of.lineage:
		return pending
	case at.Has >= of.has:
		return inStep
	case n != nil && at.Final && of.first <= n.Gen && n.Gen <= of.last:
		return refusing
	}
	return pending
}

// worse reports whether d is further behind than another stream of the same node.
func (d decision) worse(than decision) bool {
	rank := [...]int{inStep: 0, pending: 1, refusing: 2}
	return rank[d] > rank[than]
}

func older(was *Laggard, at *fanout.Standing) *Laggard {
	if was != nil && !at.Since.Before(was.Since) {
		return was
	}
	return &Laggard{Node: at.Node, Stream: at.Stream, State: at.State, Since: at.Since}
}

// Count adds what standings say to the keys, which are in order: how many clients
// are in which state, and how far each version has come. It reads all of the
// standings once.
func Count(keys []KeyStatus, standings iter.Seq[fanout.Standing]) {
	last := make([]uint64, len(keys)) // stream that was counted; those of one come together
	for at := range standings {
		name := at.Key.String()
		i, ok := slices.BinarySearchFunc(keys, name, func(k KeyStatus, n string) int { return cmp.Compare(k.Key, n) })
		if !ok {
			continue
		}
		if last[i] != at.Stream {
			last[i] = at.Stream
			keys[i].Clients++
		}
		t := slices.IndexFunc(keys[i].Types, func(t TypeStatus) bool { return t.Type == string(at.Type) })
		if t < 0 {
			continue
		}
		keys[i].Types[t].count(&at)
	}
}

func (t *TypeStatus) count(at *fanout.Standing) {
	if t.States == nil {
		t.States = make(map[string]int)
	}
	t.States[at.State]++
	for i := range t.Versions {
		v := &t.Versions[i]
		v.Clients++
		switch evaluate(at, v.in) {
		case inStep:
			v.InStep++
		case refusing:
			v.Refusing++
		default:
			v.Pending++
			v.Laggard = older(v.Laggard, at)
		}
	}
}
