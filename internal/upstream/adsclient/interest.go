package adsclient

import (
	"maps"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Resubscriptions lists by type the names that were wanted and later, for a while, were not. The stream
// has to request those of them again that are wanted now.
type Resubscriptions map[xds.TypeURL]*resubscription

type resubscription struct {
	names     map[string]struct{}
	requested map[string]struct{} // wanted all the time, and requested again (P18, P25)
}

// Unsubscribed returns which names of typ were unsubscribed.
func (r Resubscriptions) Unsubscribed(typ xds.TypeURL) (names map[string]struct{}) {
	if r[typ] == nil {
		return nil
	}
	return r[typ].names
}

// Note records what a new interest leaves out of the one before, and what it requests again.
func (r Resubscriptions) Note(before, after *snapshot.Interest) {
	if before == nil {
		return
	}
	for _, old := range before.Types {
		for name, added := range old.Names.Diff(after.Of(old.Type).Names) {
			if !added {
				r.entry(old.Type).names[name] = struct{}{}
			}
		}
	}
	for _, t := range after.Types {
		for _, name := range t.Again {
			r.entry(t.Type).requested[name] = struct{}{}
		}
	}
}

func (r Resubscriptions) entry(typ xds.TypeURL) *resubscription {
	if r[typ] == nil {
		r[typ] = &resubscription{names: make(map[string]struct{}), requested: make(map[string]struct{})}
	}
	return r[typ]
}

// SetInterest implements Conversation.
//
// A change between names and wildcard takes a new stream:
//   - SotW cannot end a wildcard otherwise (P64).
//   - The next response could answer either the names or the wildcard. The relay could not tell
//     which, and that decides which resources are absent.
//   - Origins record what they sent on a stream, and leave that out of later responses.
//     go-control-plane does so when a wildcard is unsubscribed.
//
// If nothing of the type is wanted after the wildcard, the stream goes on, because other types use
// it (P16). Later responses of the type are dropped. The stream is replaced when the type is wanted
// again, or when nothing is wanted.
func (p *protocolState) SetInterest(i *snapshot.Interest, again Resubscriptions) bool {
	for _, in := range i.Types {
		if p.byURL[in.Type] == nil && !in.Empty() {
			t := &typeState{typ: xds.TypeOf(in.Type)}
			p.byURL[in.Type] = t
			p.types = append(p.types, t)
		}
	}
	fits, ended, wanted := true, false, false
	for _, t := range p.types {
		p.storeInterest(t, i.Of(t.typ.URL), again[t.typ.URL])
		fits = fits && t.fits()
		ended = ended || t.wildcardEnded
		wanted = wanted || !t.wanted.empty()
	}
	p.dropUnusedVersions()
	return !p.tooManyUnused() && fits && (wanted || !ended)
}

func (p *protocolState) storeInterest(t *typeState, in snapshot.TypeInterest, again *resubscription) {
	t.wanted = subscription{wildcard: in.Wildcard, id: in.WildcardID, names: in.Names}
	t.brought = in.Brought
	if !t.requested {
		return
	}
	if again != nil {
		t.resubscribe = t.addSubscribed(t.resubscribe, again.names)
		if p.echoesNonce {
			t.resubscribe = t.addSubscribed(t.resubscribe, again.requested)
		} else {
			t.requestAgain = t.addSubscribed(t.requestAgain, again.requested)
		}
	}
	if t.wanted.empty() {
		t.sotw.awaited = awaited{}
		if t.subscribed.wildcard {
			t.subscribed, t.wildcardEnded, t.unsubscribeWildcard = subscription{}, true, !p.echoesNonce
		}
	}
}

// fits reports whether this stream can carry what is wanted of the type.
func (t *typeState) fits() bool {
	if !t.requested || t.wanted.empty() {
		return true
	}
	return !t.wildcardEnded && t.subscribed.wildcard == t.wanted.wildcard && t.subscribed.id == t.wanted.id
}

// addSubscribed adds those of the names to s that are subscribed.
func (t *typeState) addSubscribed(s *xds.NameSet, names map[string]struct{}) *xds.NameSet {
	var subscribed []string
	for name := range names {
		if t.subscribed.names.Has(name) {
			subscribed = append(subscribed, name)
		}
	}
	return s.Add(subscribed...)
}

// unused reports whether nothing of the type is wanted or subscribed, and nothing remains to be
// sent.
func (t *typeState) unused() bool {
	return t.wanted.empty() && t.subscribed.empty() && !t.unsubscribeWildcard && !t.applying &&
		t.resubscribe.Len() == 0 && len(t.replies) == 0 && !t.sotw.ackDue
}

// toResubscribe empties t.resubscribe, and returns those of the names that are wanted and that the
// origin has not answered since.
func (p *protocolState) toResubscribe(t *typeState) (names []string) {
	if t.resubscribe.Len() == 0 {
		return nil
	}
	part := t.wanted.part(p.Newest(t.typ.URL))
	for name := range t.resubscribe.All() {
		if t.wanted.names.Has(name) && part.Unanswered(name) {
			names = append(names, name)
		}
	}
	t.resubscribe = nil
	return names
}

// toRequestAgain empties t.requestAgain, and returns those of the names that are wanted and not
// held: a held name is never requested again on a stream (P64).
func (p *protocolState) toRequestAgain(t *typeState) (names []string) {
	if t.requestAgain.Len() == 0 {
		return nil
	}
	part := t.wanted.part(p.Newest(t.typ.URL))
	for name := range t.requestAgain.All() {
		if t.wanted.names.Has(name) && t.subscribed.names.Has(name) && !part.Answers(name) {
			names = append(names, name)
		}
	}
	t.requestAgain = nil
	return names
}

// changed reports whether the next request changes the subscription.
func (t *typeState) changed() bool {
	return t.resubscribe.Len() > 0 || t.requestAgain.Len() > 0 || !t.subscribed.equal(t.wanted)
}

// dropUnusedVersions drops the LastVersions of types that are no longer wanted.
func (p *protocolState) dropUnusedVersions() {
	maps.DeleteFunc(p.LastVersions, func(typ xds.TypeURL, _ *lastAccepted) bool {
		return p.byURL[typ] == nil || p.byURL[typ].unused()
	})
}

// tooManyUnused reports whether the stream remembers too many types that are no longer wanted: a
// new stream is then opened. It remembers three things of such a type: whether the wildcard ended,
// the newest nonce (P64), and that a late response is to be ACKed.
func (p *protocolState) tooManyUnused() bool {
	unused := 0
	for _, t := range p.types {
		if t.unused() {
			unused++
		}
	}
	return unused > maxUnused
}
