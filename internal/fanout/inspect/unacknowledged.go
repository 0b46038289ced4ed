package inspect

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Unacknowledged is what a client rejected, or has not acknowledged yet, of a type.
type Unacknowledged struct {
	Stream uint64
	Node   string
	Key    xds.Key
	Type   xds.Type
	State  string
	Since  time.Time
	// Offer has the generation that the client rejected or is to acknowledge, and the one that it
	// has. AckedVersion and Version are their versions.
	snapshot.Offer
	AckedVersion, Version string

	Nack *subscriber.Nack // nil: nothing was rejected
	// Unsent: it was not sent yet. Otherwise, without a Nack, its ACK is pending.
	Unsent bool
	// Sending is set while the relay sends a response of the type.
	Sending *Sending
	// Unanswered are names that the origin has not answered yet, "*" for the wildcard. They are
	// bounded like Names. nil: there is something to acknowledge.
	Unanswered []string
	// NoKey is the reason why the type has no key and gets no response; empty: it has a key.
	NoKey string

	unanswered iter.Seq[string] // from which collect makes Unanswered; nil: none
}

// Sending is how much of a response the client's host has received.
type Sending struct {
	Since    time.Time `json:"since"`
	Received int64     `json:"received_bytes"`
	Bytes    int64     `json:"bytes"`
}

// maxNames bounds the names of one type.
const maxNames = 10_000

// Unacknowledged returns what the client did not acknowledge of the type, without its stream;
// false: it acknowledged everything, or nothing is known of what it asks for.
func (t StreamType) Unacknowledged(look *Survey) (Unacknowledged, bool) {
	at, s := t.state(look), t.Session
	if t.NoKey != "" {
		return Unacknowledged{Type: *s.Type, State: at.state, Since: at.since, NoKey: t.NoKey}, true
	}
	if t.Subscriber == nil || at.state == StateSynced || !s.Began() {
		return Unacknowledged{}, false
	}
	u := Unacknowledged{
		Key: t.Subscriber.Key(), Type: *s.Type, State: at.state, Since: at.since, AckedVersion: s.AckedVersion(),
		Offer: snapshot.Offer{Lineage: at.lineage, Has: at.has, Sub: s.Subscription()},
	}
	switch {
	case at.state == StateNacked && t.nack != nil:
		u.Nack, u.Of, u.Version = t.lastNack(), t.nack.Gen, t.nack.Version
		of, names := s.NackedNames(maxNames)
		u.Of, u.Names = max(u.Of, of), names
	case s.PendingACK():
		u.Of, u.Version, u.Names = s.NewestPendingACK()
		u.Names = u.Names[:min(len(u.Names), maxNames)]
	case at.unsent:
		newest := t.newest()
		u.Of, u.Version, u.Unsent = newest.Gen, newest.Version, true
	default:
		u.unanswered = s.Copy().UnansweredNames(t.newest())
	}
	return u, true
}

// collect sets Unanswered. It is called without a lock, since there may be many names.
func (u *Unacknowledged) collect() {
	if u.unanswered != nil {
		u.Unanswered = FirstNames(u.unanswered)
	}
}

// FirstNames collects the first names, at most maxNames, and sorts them.
func FirstNames(names iter.Seq[string]) []string {
	out := []string{}
	for n := range names {
		if len(out) == maxNames {
			break
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
