package keystatus

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds/snapshot"
)

// Version says how many clients have a version of a key's type.
type Version struct {
	Version string `json:"version"`
	// OriginVersion is the version that the origin gave; empty: it gave none.
	// ContentVersion depends only on the content of all responses of the version.
	OriginVersion  string    `json:"origin_version,omitempty"`
	ContentVersion string    `json:"content_version"`
	Generation     uint64    `json:"generation"` // of the key, in which it came
	Received       time.Time `json:"received"`
	Changed        int64     `json:"changed"` // resources
	Removed        int64     `json:"removed"`
	// Sent, Acked and NackedBy (the streams that NACKed it) count streams since the version came,
	// each once, ended streams included. A client that it does not concern is sent nothing.
	Sent     uint32 `json:"sent"`
	Acked    uint32 `json:"acknowledged"`
	NackedBy uint32 `json:"nacked"`
	// Clients counts the present clients. InStep counts those that acknowledged it or something
	// newer, or for which it has nothing. Nacking counts those that NACKed it and have accepted
	// nothing since. The others are Pending.
	Clients int `json:"clients"`
	InStep  int `json:"in_step"`
	Nacking int `json:"nacking"`
	Pending int `json:"pending"`
	// P50 and P99 are bounds in seconds: at least 50 and 99 percent of the streams that were open
	// when the version came sent their first ACK of it within this time. They are bounds of Took,
	// which doubles from one to the next, so the exact time may be half of it. 2097 means longer
	// than 1049 s, the last bound.
	P50  float64  `json:"ack_seconds_p50,omitempty"`
	P99  float64  `json:"ack_seconds_p99,omitempty"`
	Took []Bucket `json:"ack_seconds,omitempty"`
	// Laggard is the pending client that has been in its state for longest.
	Laggard *Laggard `json:"laggard,omitempty"`

	in generations
}

// Bucket counts ACKs that came within AtMost seconds and later than the AtMost of the
// bucket before; 0: later than all of them.
type Bucket struct {
	AtMost float64 `json:"at_most"`
	Count  uint32  `json:"count"`
}

// Laggard is a client that does not have a version.
type Laggard struct {
	Node   string    `json:"node"`
	Stream uint64    `json:"stream"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
}

// versionsOf returns the newest versions of a type, the newest first. Count adds the numbers
// of present clients.
func versionsOf(all []*snapshot.VersionProgress) []Version {
	out := make([]Version, 0, len(all))
	for i, r := range all {
		c := r.Counts()
		s := Version{
			Version: r.Version, OriginVersion: r.Given, ContentVersion: r.Content().String(),
			Generation: r.StateNumber, Received: r.At, Changed: c.Changed, Removed: c.Removed,
			Sent: c.Sent, Acked: c.Acked, NackedBy: c.Nacked,
			P50: c.QuantileBound(.5).Seconds(), P99: c.QuantileBound(.99).Seconds(),
			in: generationsOf(all, i),
		}
		for i, n := range c.AckTimes {
			if n > 0 {
				s.Took = append(s.Took, Bucket{snapshot.AckBound(i).Seconds(), n})
			}
		}
		out = append(out, s)
	}
	return out
}

// generations are the generations of a view that a version has.
type generations struct {
	lineage uint64
	has     uint64 // a client that has this one has the version
	// A client that NACKs a generation from first to last NACKs the version.
	first, last uint64
}

// generationsOf returns the generations of the version all[at]. all has the versions of a
// type, the newest first.
func generationsOf(all []*snapshot.VersionProgress, at int) generations {
	g := generations{lineage: all[at].Lineage, has: all[at].Newest(), first: all[at].First, last: math.MaxUint64}
	if at > 0 && all[at-1].Lineage == g.lineage {
		g.last = all[at-1].First - 1
	}
	return g
}

// versionState is the state of a version at a client.
type versionState uint8

const (
	pending versionState = iota
	inStep
	nacking
)

// versionStateOf returns the state of a version at a client. A NACK counts only if it is for the
// version and final. Any other NACK keeps Has below the NACKed generation.
func versionStateOf(at *inspect.TypeState, of generations) versionState {
	switch n := at.Nack; {
	case at.Lineage != of.lineage:
		return pending
	case at.Has >= of.has:
		return inStep
	case n != nil && at.Final && of.first <= n.Gen && n.Gen <= of.last:
		return nacking
	}
	return pending
}

// worse reports whether d is further behind than another stream of the same node.
func (d versionState) worse(than versionState) bool {
	rank := [...]int{inStep: 0, pending: 1, nacking: 2}
	return rank[d] > rank[than]
}

// older returns the client that has been in its state for longer.
func older(was *Laggard, at Laggard) *Laggard {
	if was != nil && !at.Since.Before(was.Since) {
		return was
	}
	return &at
}

func laggardOf(at *inspect.TypeState) Laggard {
	return Laggard{Node: at.Node, Stream: at.Stream, State: at.State, Since: at.Since}
}

// Count adds the numbers of clients to the keys, which have to be in order: how many clients
// are in each state, and how many have each version. It reads all states once.
func Count(keys []Key, states iter.Seq[inspect.TypeState]) {
	last := make([]uint64, len(keys)) // the stream that was counted last; the states of a stream are adjacent
	for at := range states {
		name := at.Key.String()
		i, ok := slices.BinarySearchFunc(keys, name, func(k Key, n string) int { return cmp.Compare(k.Key, n) })
		if !ok {
			continue
		}
		if last[i] != at.Stream {
			last[i] = at.Stream
			keys[i].Clients++
		}
		t := slices.IndexFunc(keys[i].Types, func(t TypeSummary) bool { return t.Type == string(at.Type) })
		if t < 0 {
			continue
		}
		keys[i].Types[t].count(&at)
	}
}

func (t *TypeSummary) count(at *inspect.TypeState) {
	if t.States == nil {
		t.States = make(map[string]int)
	}
	t.States[at.State]++
	for i := range t.Versions {
		v := &t.Versions[i]
		v.Clients++
		switch versionStateOf(at, v.in) {
		case inStep:
			v.InStep++
		case nacking:
			v.Nacking++
		default:
			v.Pending++
			v.Laggard = older(v.Laggard, laggardOf(at))
		}
	}
}
