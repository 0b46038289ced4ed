package upstream

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// Fields of DeltaDiscoveryRequest.
const (
	deltaNode        protowire.Number = 1
	deltaTypeURL     protowire.Number = 2
	deltaSubscribe   protowire.Number = 3
	deltaUnsubscribe protowire.Number = 4
	deltaInitial     protowire.Number = 5
	deltaNonce       protowire.Number = 6
	deltaDetail      protowire.Number = 7
)

// delta is an incremental talk: names change in requests of their own, without
// a nonce, and no name is in both lists; acknowledgements hold nothing else
// (P64).
type delta struct{ talk }

func newDelta(o talkOptions) *delta { return &delta{newTalk(o)} }

func (d *delta) taken(r *xds.Response) {
	t := d.byURL[r.TypeURL]
	t.judging = false
	t.good()
	t.reply(reply{nonce: r.Nonce})
	if t.asked.empty() {
		return // nobody wants it any more
	}
	d.took(t, r)
}

func (d *delta) next(now time.Time) *request {
	for _, t := range d.types {
		if r, ok := t.due(now); ok {
			return d.answer(t, r)
		}
		switch {
		case !t.requested:
			if !t.want.empty() {
				return d.first(t)
			}
		case t.ending:
			t.ending = false
			return d.change(t, nil, []string{"*"})
		case len(t.lapsed) > 0:
			// Out, and in again with the next request: no name in both lists.
			_, drop := fit(nil, t.lapsed, d.room(t))
			t.lapsed = t.lapsed[len(drop):]
			return d.change(t, nil, drop)
		case !t.asked.equal(t.want):
			add, drop := diff(t.asked.names, t.want.names)
			add, drop = fit(add, drop, d.room(t))
			return d.change(t, add, drop)
		}
	}
	return nil
}

// answer acknowledges or refuses a response.
func (d *delta) answer(t *typeTalk, r reply) *request {
	b := appendText(nil, deltaTypeURL, string(t.typ.URL))
	b = appendText(b, deltaNonce, r.nonce)
	if r.fault != "" {
		b = appendStatus(b, deltaDetail, r.fault)
	}
	return &request{typ: t.typ.URL, head: b, refusal: r.fault}
}

// change is a request that only changes names.
func (d *delta) change(t *typeTalk, add, drop []string) *request {
	t.asked.names = t.asked.names.Remove(drop...).Add(add...)
	if t.asked.names.Equal(t.want.names) {
		t.asked.names = t.want.names // so that the next comparison is one of pointers
	}
	b := appendText(nil, deltaTypeURL, string(t.typ.URL))
	for _, n := range add {
		b = appendText(b, deltaSubscribe, n)
	}
	for _, n := range drop {
		b = appendText(b, deltaUnsubscribe, n)
	}
	return &request{typ: t.typ.URL, head: b, oversized: len(b) > d.maxRequest}
}

// room is what a request that only changes names has for them.
func (d *delta) room(t *typeTalk) int {
	return d.maxRequest - nameSize(deltaTypeURL, string(t.typ.URL))
}

// first is a stream's first request for a type. It names the versions that are
// held (P55); what has none of this origin's is named with an empty one, so
// that its removal is still reported. What has no room follows, or is left out
// (P59).
func (d *delta) first(t *typeTalk) *request {
	snap := d.held(t.typ.URL)
	part := t.want.part(snap)
	m := d.recall(t.typ.URL, t.want.wildcard, part)
	var held []brought
	for res := range t.want.covers(snap) {
		version := res.OriginVersion
		if m.foreign.Has(res.Name) {
			version = ""
		}
		held = append(held, brought{res.Name, version, part.AskedAs(res.Name, t.want.names)})
	}
	for name := range part.Lapsed { // others may still hold it
		if t.want.wildcard || part.Asked(name, t.want.names) {
			held = append(held, brought{name: name, by: part.AskedAs(name, t.want.names)})
		}
	}

	b := d.appendNode(nil, deltaNode)
	b = appendText(b, deltaTypeURL, string(t.typ.URL))
	o := open(t.want, held, d.maxRequest-len(b))
	t.requested, t.asked = true, asked{wildcard: t.want.wildcard, names: o.names}
	if t.want.wildcard {
		b = appendText(b, deltaSubscribe, "*")
	} else {
		b = slices.Concat(b, encodeList(deltaSubscribe, t.asked))
	}
	for _, h := range o.versions {
		b = appendVersion(b, h.name, h.version)
	}
	return &request{typ: t.typ.URL, head: b, oversized: len(b) > d.maxRequest, leftOut: o.leftOut}
}
