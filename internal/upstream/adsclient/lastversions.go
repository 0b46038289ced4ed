package adsclient

import (
	"iter"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// LastVersions is the state that a key's streams leave to the next one, for each wanted type. With it
// a stream lists the held versions (P55). Make one by make(LastVersions); a Conversation fills it.
type LastVersions map[xds.TypeURL]*lastAccepted

// lastAccepted is the state after the responses of one domain to the wildcard or to names.
type lastAccepted struct {
	domain   string
	wildcard bool
	answered bool // a response was accepted
	// otherOrigins are held names whose version may not be this origin's: it has not sent them
	// since the key changed to it.
	otherOrigins *xds.NameSet
	version      string // SotW: that of the last accepted response
}

// record records what an accepted response brought or removed. It returns the state of the type.
func (p *protocolState) record(t *typeState, r *xds.Response) *lastAccepted {
	last := p.LastVersions[r.TypeURL]
	if last == nil || last.domain != p.Domain || last.wildcard != t.subscribed.wildcard {
		last = p.lastAccepted(r.TypeURL, t.subscribed.wildcard, t.subscribed.part(p.Newest(r.TypeURL)))
	}
	last.answered = true
	if last.otherOrigins.Len() > 0 {
		names := make([]string, 0, len(r.Resources)+len(r.Removed))
		for i := range r.Resources {
			if r.Resources[i].HasBody() {
				names = append(names, r.Resources[i].Name)
			}
		}
		last.otherOrigins = last.otherOrigins.Remove(append(names, r.Removed...)...)
	}
	return last
}

// Unanswered returns what an origin has not answered of an interest: whether that is the wildcard, and
// the names. snap is the newest snapshot of the type.
func (r LastVersions) Unanswered(domain string, t snapshot.TypeInterest, snap *snapshot.Snapshot) (wildcard bool, names []string) {
	part, last := snap.Part(t.Scope()), r[t.Type]
	answered := last != nil && last.answered && last.domain == domain && last.wildcard == t.Wildcard
	if t.Wildcard {
		return !answered, nil
	}
	for name := range t.Names.All() {
		if !answered || part.Unanswered(name) || last.otherOrigins.Has(name) {
			names = append(names, name)
		}
	}
	return false, names
}

// lastAccepted returns the state that earlier streams left for a type (P55), if that is of this
// origin and of the same kind of subscription. Otherwise the whole part counts as other origins',
// in three cases:
//   - The key used another origin. If that was a directory, which leaves no LastVersions, only the
//     part's origin shows it.
//   - The key came back from another origin, which brought the part.
//   - Another stream of the key brought the part (P50). The origin has to send all of it again.
//     Otherwise the relay could not tell when the origin has sent it.
func (p *protocolState) lastAccepted(typ xds.TypeURL, wildcard bool, part snapshot.Part) *lastAccepted {
	last := p.LastVersions[typ]
	_, domain := part.Origin()
	other := domain != "" && domain != p.Domain
	if last == nil || last.domain != p.Domain || last.wildcard != wildcard || other {
		last = &lastAccepted{domain: p.Domain, wildcard: wildcard}
		var names []string
		if !p.ContentVersions {
			for res := range part.Resources {
				names = append(names, res.Name)
			}
		}
		last.otherOrigins = xds.NewNameSet(names...)
		p.LastVersions[typ] = last
	}
	return last
}

// subscription is what is subscribed of one type: the wildcard or names.
type subscription struct {
	wildcard bool
	id       uint64 // of this subscription to the wildcard
	names    *xds.NameSet
}

func (s subscription) empty() bool { return !s.wildcard && s.names.Len() == 0 }

func (s subscription) equal(o subscription) bool {
	return s.wildcard == o.wildcard && s.names.Equal(o.names)
}

// part is the part of a snapshot that answers the subscription. Resources that came for names do
// not answer the wildcard, nor the other way round (P50).
func (s subscription) part(snap *snapshot.Snapshot) snapshot.Part { return snap.Part(s.scope()) }

func (s subscription) scope() snapshot.Scope { return snapshot.ScopeOf(s.wildcard) }

// covers yields the held resources that answer the subscription, in order of names.
func (s subscription) covers(snap *snapshot.Snapshot) iter.Seq[*xds.Resource] {
	part := s.part(snap)
	if s.wildcard {
		return part.Resources
	}
	return func(yield func(*xds.Resource) bool) { part.Covered(s.names, yield) }
}
