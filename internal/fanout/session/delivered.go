package session

import (
	"maps"
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// baseline is the snapshot that a client was sent, with which the next response is compared.
type baseline struct {
	snapshot *snapshot.Snapshot     // nil: nothing was sent
	sub      *snapshot.Subscription // by which it was sent, while resendAll; nil: the effective one
	// resendAll: the wildcard was subscribed anew. All of it is answered, sent before or not.
	resendAll bool
}

// sentBy is the subscription by which the snapshot was sent; sub is the effective one.
func (b baseline) sentBy(sub *snapshot.Subscription) *snapshot.Subscription {
	if b.sub != nil {
		return b.sub
	}
	return sub
}

// look is what the client was sent under a name. The client may still have an expired resource,
// even if the name has become another resource's alias.
func (b baseline) look(sub *snapshot.Subscription, name string) (*xds.Resource, snapshot.Presence) {
	r, is := b.snapshot.Look(b.sentBy(sub), name)
	if is == snapshot.UnderOtherName {
		if own, ownIs := b.snapshot.LookOwnName(b.sentBy(sub), name); ownIs == snapshot.Expired {
			return own, snapshot.Expired
		}
	}
	return r, is
}

// error is the error of a name that the client was sent (P39).
func (b baseline) error(sub *snapshot.Subscription, name string) *xds.ResourceError {
	return b.snapshot.Error(b.sentBy(sub), name)
}

// ignores reports whether it does not matter what the client was sent of a name. A removal still
// has to be sent to a client that has the resource.
func (b baseline) ignores(was, is snapshot.Presence) bool {
	return b.resendAll && (was != snapshot.Present || is != snapshot.Absent)
}

// candidates are the names that may differ between what the client was sent and what it is to have
// of a snapshot.
func (b baseline) candidates(to *snapshot.Snapshot, sub *snapshot.Subscription) []string {
	names := to.Changes(b.snapshot, b.sentBy(sub))
	if b.resendAll {
		names = append(names, to.Changes(nil, sub)...)
	}
	return names
}

// delivered is what the client was sent: a snapshot, and exceptions from it. The maps are nil while
// they are empty.
type delivered struct {
	baseline
	initialResponsePending bool // the first request (P11), or a new wildcard, has no response yet
	// sentBeforeACK has what the client has under names where that differs from the snapshot; nil:
	// nothing. There are three cases, the first two in delta only: answers that were sent while an
	// ACK was pending (P19), resources that the snapshot does not have any more (retained), and
	// resources of the snapshot that the client may not have (subscribed).
	sentBeforeACK map[string]*xds.Resource
	// errors are the errors that the client was sent where the snapshot has another one; nil: none
	// (P39).
	errors map[string]*xds.ResourceError
	// tooLarge is the response that is not sent because of its size (P38); nil: none.
	tooLarge *tooLarge
}

// tooLarge is a response that is not sent because of its size.
type tooLarge struct {
	key FrameKey
	to  snapshot.ID
	Oversized
}

// Oversized is a response that is not sent because it is over the size limit (P38).
type Oversized struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
}

// look is what the client was sent under a name; sub is the effective subscription.
func (d *delivered) look(sub *snapshot.Subscription, name string) (*xds.Resource, snapshot.Presence) {
	if r, ok := d.sentBeforeACK[name]; ok {
		switch {
		case r == nil:
			return nil, snapshot.Absent
		case r.Unresolved():
			return r, snapshot.Unresolvable
		}
		return r, snapshot.Present
	}
	return d.baseline.look(sub, name)
}

// error is the last error of a name that the client was sent (P39).
func (d *delivered) error(sub *snapshot.Subscription, name string) *xds.ResourceError {
	if e, ok := d.errors[name]; ok {
		return e
	}
	return d.baseline.error(sub, name)
}

// moveTo records a response that was made from a snapshot. retained are resources that the client
// still has besides.
func (d *delivered) moveTo(to *snapshot.Snapshot, retained map[string]*xds.Resource) {
	d.baseline = baseline{snapshot: to}
	d.sentBeforeACK, d.errors, d.tooLarge = retained, nil, nil
}

// restart has everything answered, as after a first request, because the client subscribed to the
// wildcard. Removals of what the client has are still sent. before is the old subscription.
func (d *delivered) restart(before *snapshot.Subscription) {
	if !d.resendAll {
		d.sub = before
	}
	d.initialResponsePending, d.resendAll = true, true
}

// cancelRestart undoes restart: the client unsubscribed from the wildcard before it was answered.
// It returns the subscription by which the snapshot was sent; sub is the effective one.
func (d *delivered) cancelRestart(sub *snapshot.Subscription) (before *snapshot.Subscription) {
	before = d.sentBy(sub)
	d.initialResponsePending, d.resendAll, d.sub = d.snapshot == nil, false, nil
	return before
}

// subscribed applies a new subscription to a name; before is the old one. The client may
// not have the resources to which the name leads in the snapshot that it was sent. By the time the
// name is answered, it may lead to other resources, or to none.
func (d *delivered) subscribed(name string, before *snapshot.Subscription) {
	if before.Names.Has(name) {
		return
	}
	at := d.snapshot
	for _, n := range at.NamesByAlias(name) {
		if _, newer := d.sentBeforeACK[n]; newer {
			continue
		}
		if _, is := at.Look(before, n); is != snapshot.Present {
			put(&d.sentBeforeACK, n, nil)
		}
	}
}

// namesBeforeACK maps the names and aliases of resources that were sent before an ACK to the
// resource's name, or to "" where an alias leads to several resources.
func (d *delivered) namesBeforeACK() map[string]string {
	nameFor := make(map[string]string)
	for name, r := range d.sentBeforeACK {
		if r == nil || r.Unresolved() {
			continue
		}
		nameFor[name] = name
		for _, h := range r.AliasesAndGlob() {
			if _, twice := nameFor[h]; twice {
				nameFor[h] = ""
			} else {
				nameFor[h] = name
			}
		}
	}
	return nameFor
}

// retained are resources that the client has, and that the new snapshot says nothing about. So a
// comparison of snapshots would never remove them. There are two cases. The wildcard had the
// resource and lost it (P21), and the client has requested it by name since. Or the client had it
// by an alias and it is gone, and the client has requested a wildcard since that is unanswered.
//
// In SotW there are none: a full-state response leaves them out, and others cannot (P31).
func (s *Session) retained(to *snapshot.Snapshot) (retained map[string]*xds.Resource) {
	if s.form.Variant == xds.SotW {
		return nil
	}
	sub := s.sub.effective
	add := func(name string) {
		had, was := s.delivered.look(sub, name)
		if was != snapshot.Present || !sub.Covers(name) && !had.RequestedBy(sub.Names) {
			return
		}
		if _, is := (comparison{s, to}).see(name, had, was); is != snapshot.Pending {
			return
		}
		put(&retained, name, had)
	}
	for name, why := range s.forced.names {
		if why != byRequest {
			continue
		}
		add(name)
		for _, n := range s.delivered.snapshot.NamesByAlias(name) {
			add(n)
		}
	}
	if sub.Wildcard && !to.AnswersWildcard(sub) {
		sentBy := s.delivered.sentBy(sub)
		for _, name := range slices.AppendSeq((comparison{s, to}).candidates(), maps.Keys(s.delivered.sentBeforeACK)) {
			if had, _ := s.delivered.look(sub, name); had != nil && (sentBy.Covers(name) || had.RequestedBy(sentBy.Names)) {
				add(name)
			}
		}
	}
	return retained
}

// Copy returns a copy of the session. It copies the maps and lists of what is out of step, and
// shares snapshots, sets and manifests, which do not change.
func (s *Session) Copy() *Session {
	c := *s
	c.delivered.sentBeforeACK, c.delivered.errors = maps.Clone(s.delivered.sentBeforeACK), maps.Clone(s.delivered.errors)
	c.forced.names, c.forced.retried = maps.Clone(s.forced.names), maps.Clone(s.forced.retried)
	c.pendingACKs.responses, c.nacks.list = slices.Clone(s.pendingACKs.responses), slices.Clone(s.nacks.list)
	c.clientVersions = nil
	return &c
}
