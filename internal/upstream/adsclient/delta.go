package adsclient

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// delta is a Conversation in delta. Names change in separate requests without a nonce, and no name
// is in both lists. ACKs and NACKs contain nothing else (P64).
type delta struct{ protocolState }

func newDelta(o Options) *delta { return &delta{newProtocolState(o, deltaNode)} }

func (d *delta) NextRequest(now time.Time) *Request {
	for _, t := range d.types {
		if r, ok := t.nextReply(now); ok {
			return d.reply(t, r)
		}
		switch {
		case !t.requested:
			if !t.wanted.empty() {
				return d.first(t)
			}
			continue
		case t.unsubscribeWildcard:
			t.unsubscribeWildcard = false
			return d.change(t, nil, []string{"*"}, now)
		}
		var add, drop []string
		if again := d.toResubscribe(t); len(again) > 0 {
			// The names are unsubscribed now and subscribed again by the next request, so that no
			// name is in both lists.
			_, drop = splitChange(nil, again, d.room(t))
			t.resubscribe = xds.NewNameSet(again[len(drop):]...)
		} else if again := d.toRequestAgain(t); len(again) > 0 {
			add, _ = splitChange(again, nil, d.room(t))
			t.requestAgain = xds.NewNameSet(again[len(add):]...)
		} else if !t.subscribed.equal(t.wanted) {
			add, drop = diff(t.subscribed.names, t.wanted.names)
			add, drop = splitChange(add, drop, d.room(t))
		} else {
			continue
		}
		return d.change(t, add, drop, now)
	}
	return nil
}

// reply encodes an ACK or a NACK.
func (d *delta) reply(t *typeState, r reply) *Request {
	b := appendText(nil, deltaTypeURL, string(t.typ.URL))
	b = appendText(b, deltaNonce, r.nonce)
	if r.fault != "" {
		b = appendStatus(b, deltaDetail, r.fault)
	}
	req := d.newRequest(t.typ.URL, b)
	req.NACK = r.fault
	return req
}

// change encodes a request that only changes names.
func (d *delta) change(t *typeState, add, drop []string, now time.Time) *Request {
	t.unanswered.subscribed(add, now)
	t.unanswered.unsubscribed(drop)
	t.subscribed.names = t.subscribed.names.Remove(drop...).Add(add...)
	if t.subscribed.names.Equal(t.wanted.names) {
		t.subscribed.names = t.wanted.names // makes the next comparison a pointer comparison
	}
	b := appendText(nil, deltaTypeURL, string(t.typ.URL))
	for _, n := range add {
		b = appendText(b, deltaSubscribe, n)
	}
	for _, n := range drop {
		b = appendText(b, deltaUnsubscribe, n)
	}
	return d.newRequest(t.typ.URL, b)
}

// room is the space in a request beside its type and node, in bytes.
func (d *delta) room(t *typeState) int {
	return d.MaxRequestBytes - nameSize(deltaTypeURL, string(t.typ.URL)) - len(d.nodeField())
}

// first encodes a stream's first request for a type. It lists the held versions (P55). A resource
// without a version of this origin is listed with an empty one, so that the origin still reports
// its removal. The smallest held resource has an empty version too, so that a working origin
// answers; an origin with ContentVersions is a relay, which answers anyway. Names that do not fit
// follow in later requests; versions that do not fit are left out (P59).
func (d *delta) first(t *typeState) *Request {
	snap := d.Newest(t.typ.URL)
	part := t.wanted.part(snap)
	last := d.lastAccepted(t.typ.URL, t.wanted.wildcard, part)
	var held []heldVersion
	list := func(name, version string, size int64) {
		if name != "" && !xds.IsPlace(name) { // P3: the origin knows no such name
			held = append(held, heldVersion{name, version, part.RequestedAs(name, t.wanted.names), size})
		}
	}
	for res := range t.wanted.covers(snap) {
		version := res.OriginVersion
		switch {
		case res.IsStored(), d.ContentVersions && res.OriginVersion == "" && res.GivenVersion != "":
			// No origin has answered for it yet (P66), or its deletion waits (P36) and the origin has to
			// say whether it is back.
			version = ""
		case d.ContentVersions:
			version = res.Version.String()
		case last.otherOrigins.Has(res.Name):
			version = ""
		}
		list(res.Name, version, res.Size())
	}
	for name := range part.ExpiredNames { // clients may still hold it
		if t.wanted.wildcard || part.Requested(name, t.wanted.names) {
			list(name, "", 0)
		}
	}
	if !d.ContentVersions {
		requestSmallest(held)
	}
	b := appendText(nil, deltaTypeURL, string(t.typ.URL))
	o := splitFirst(t.wanted, held, d.room(t))
	t.requested, t.subscribed = true, subscription{wildcard: t.wanted.wildcard, id: t.wanted.id, names: o.names}
	var listed []string // the origin does not answer for what has not changed
	for _, h := range o.versions {
		listed = append(listed, h.subscribedAs)
	}
	t.unanswered.pending = o.names.Remove(listed...)
	b = slices.Concat(b, encodeList(deltaSubscribe, t))
	for _, h := range o.versions {
		b = appendVersion(b, h.name, h.version)
	}
	r := d.newRequest(t.typ.URL, b)
	r.VersionsLeftOut = o.leftOut
	return r
}

// diff returns the names to add and to drop to get from a to b.
func diff(a, b *xds.NameSet) (add, drop []string) {
	for name, added := range a.Diff(b) {
		if added {
			add = append(add, name)
		} else {
			drop = append(drop, name)
		}
	}
	return add, drop
}
