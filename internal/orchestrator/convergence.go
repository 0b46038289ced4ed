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

// VersionStatus is how a version of a key's type came to the clients.
type VersionStatus struct {
	Version string `json:"version"`
	// OriginVersion is what the origin called it; empty: it did not say. ContentVersion
	// is what it is called by its content alone.
	OriginVersion  string    `json:"origin_version,omitempty"`
	ContentVersion string    `json:"content_version"`
	Generation     uint64    `json:"generation"` // of the key, in which it came
	Received       time.Time `json:"received"`
	Changed        int64     `json:"changed"` // resources
	Removed        int64     `json:"removed"`
	// Sent, Acked and RefusedBy count streams since it came, those that have gone
	// included, each once. Whom it does not concern is sent nothing.
	Sent      uint32 `json:"sent"`
	Acked     uint32 `json:"acknowledged"`
	RefusedBy uint32 `json:"refused"`
	// Clients are those of now: InStep have it or something newer, or are not
	// concerned; Refusing refused it, or something before it that it still has; the
	// rest is Pending.
	Clients  int `json:"clients"`
	InStep   int `json:"in_step"`
	Refusing int `json:"refusing"`
	Pending  int `json:"pending"`
	// P50 and P99 are the seconds from its coming to the ACK, of the streams that were
	// there when it came; Took the numbers from which they are.
	P50  float64  `json:"ack_seconds_p50,omitempty"`
	P99  float64  `json:"ack_seconds_p99,omitempty"`
	Took []Bucket `json:"ack_seconds,omitempty"`
	// Laggard is the pending client that has stood where it stands for longest.
	Laggard *Laggard `json:"laggard,omitempty"`

	lineage, gen uint64
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
	all := v.rollouts.all()
	out := make([]VersionStatus, 0, len(all))
	for _, r := range all {
		c := r.Counts()
		s := VersionStatus{
			Version: r.Version, OriginVersion: r.Given, ContentVersion: r.Content.String(),
			Generation: r.StateGen, Received: r.At, Changed: c.Changed, Removed: c.Removed,
			Sent: c.Sent, Acked: c.Acked, RefusedBy: c.Refused,
			P50: c.Quantile(.5).Seconds(), P99: c.Quantile(.99).Seconds(),
			lineage: r.Lineage, gen: r.Newest(),
		}
		for i, n := range c.Took {
			if n > 0 {
				s.Took = append(s.Took, Bucket{xds.RolloutBound(i).Seconds(), n})
			}
		}
		out = append(out, s)
	}
	return out
}

// verdict is what a standing means for a version.
type verdict uint8

const (
	pending verdict = iota
	inStep
	refusing
)

func judge(at *fanout.Standing, lineage, gen uint64) verdict {
	switch {
	case at.Lineage == lineage && at.Has >= gen:
		return inStep
	case at.Refused:
		return refusing
	}
	return pending
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
	for at := range standings {
		name := at.Key.String()
		i, ok := slices.BinarySearchFunc(keys, name, func(k KeyStatus, n string) int { return cmp.Compare(k.Key, n) })
		if !ok {
			continue
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
		switch judge(at, v.lineage, v.gen) {
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

// Progress is how far a version of a type has come, for who waits for it.
type Progress struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Version string `json:"version"` // as it was asked for
	// Known: the version came, and is remembered. Mark names it from then on, for as
	// long as the relay runs: give it along, and it is known also when many newer
	// ones have come.
	Known bool   `json:"known"`
	Mark  string `json:"mark,omitempty"`
	// Newest is the newest version, and what the origin calls it.
	Newest       string `json:"newest_version,omitempty"`
	NewestOrigin string `json:"newest_origin_version,omitempty"`
	// Clients are those of the key and type: Reached have the version or something
	// newer, or it is nothing to them; Refusing refused it, or something before that
	// they still do not have; the rest is Pending. Of a version that is not known
	// all are.
	Clients  int     `json:"clients"`
	Reached  int     `json:"reached"`
	Refusing int     `json:"refusing"`
	Pending  int     `json:"pending"`
	Percent  float64 `json:"percent"` // 0 without clients
	// Laggard is the pending client that has stood where it stands for longest,
	// Refuser such a one of those that refuse.
	Laggard *Laggard `json:"laggard,omitempty"`
	Refuser *Laggard `json:"refuser,omitempty"`
	// Started is when the relay did.
	Started time.Time `json:"started"`
}

// Progress says how far a version has come; mark is that of an answer before, or
// empty. standings gives those that are wanted, as fanout.Server.Standings.
func (r *Registry) Progress(key xds.Key, typ xds.TypeURL, version, mark string, standings func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[fanout.Standing]) Progress {
	p := Progress{Key: key.String(), Type: string(typ), Version: version, Started: r.started}
	lineage, gen := r.find(&p, key, typ, mark)
	for at := range standings(func(k xds.Key, t xds.TypeURL) bool { return k == key && t == typ }) {
		p.Clients++
		switch is := judge(&at, lineage, gen); {
		case p.Known && is == inStep:
			p.Reached++
		case p.Known && is == refusing:
			p.Refusing++
			p.Refuser = older(p.Refuser, &at)
		default:
			p.Pending++
			p.Laggard = older(p.Laggard, &at)
		}
	}
	if p.Clients > 0 {
		p.Percent = 100 * float64(p.Reached) / float64(p.Clients)
	}
	return p
}

// find finds the version, and the generation of which all is to be taken.
func (r *Registry) find(p *Progress, key xds.Key, typ xds.TypeURL, mark string) (lineage, gen uint64) {
	g := r.group(key)
	if g == nil {
		return 0, 0
	}
	v := find(*g.types.Load(), typ)
	if v == nil {
		return 0, 0
	}
	newest := v.held.Load()
	if newest == nil {
		return 0, 0
	}
	p.Newest, p.NewestOrigin = newest.Version, newest.Given()
	all := v.rollouts.all()
	if i := slices.IndexFunc(all, func(o *xds.Rollout) bool { return o.Is(p.Version) }); i >= 0 {
		lineage, gen = all[i].Lineage, all[i].Newest()
	} else if l, g, ok := r.unmark(mark); ok && l == newest.Lineage && g <= newest.Gen {
		lineage, gen = l, g
	} else {
		return 0, 0
	}
	p.Known, p.Mark = true, fmt.Sprintf("%x-%x-%x", r.started.UnixNano(), lineage, gen)
	return lineage, gen
}

// unmark reads a mark that this process made.
func (r *Registry) unmark(mark string) (lineage, gen uint64, ok bool) {
	var started int64
	n, err := fmt.Sscanf(mark, "%x-%x-%x", &started, &lineage, &gen)
	return lineage, gen, err == nil && n == 3 && started == r.started.UnixNano()
}

// group returns the group of a key; nil if it is not in use.
func (r *Registry) group(key xds.Key) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[key]
}
