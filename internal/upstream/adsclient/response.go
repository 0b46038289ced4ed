package adsclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Decision says what to do with a response.
type Decision struct {
	Accept bool
	// NotRequested: the type was never requested on this stream. The response is dropped and not
	// ACKed, because an ACK would request the type.
	NotRequested bool
	// NACKsInARow counts the type's NACKs since its last accepted response, with this one. It is 0
	// if the response is not NACKed.
	NACKsInARow int
	// NewFault: the NACK is worth a warning, because it does not repeat the last one.
	NewFault bool

	// The fields below are input of BuildUpdate for an accepted response.
	subscribed      subscription // when the response came
	acceptedVersion string       // SotW: the version_info accepted last
	noneNACKed      bool         // no response of the type was NACKed since the last accepted one
	// unasked: the response does not answer a new stream. The relay asked for that answer (P55), and
	// the origin need not have changed anything. So such an answer sends clients nothing again (P15,
	// P33).
	unasked bool
	// contentVersions are the Options' ContentVersions.
	contentVersions bool
	// brought are names that other relays received, if the response answers all that is subscribed.
	brought      *xds.NameSet
	otherOrigins *xds.NameSet // held names for which this origin has sent no version
}

// Wanted reports whether anything of the type is still subscribed to. Otherwise an accepted
// response is ACKed and changes nothing.
func (d Decision) Wanted() bool { return !d.subscribed.empty() }

// Scope returns the scope of what the response answers.
func (d Decision) Scope() snapshot.Scope { return d.subscribed.scope() }

func (p *protocolState) Receive(r *xds.Response, fault error, now time.Time) (Decision, error) {
	if errors.Is(fault, xds.ErrUnreadable) && (r.TypeURL == "" || r.Nonce == "") {
		return Decision{}, fmt.Errorf("%w: %w", errUnattributable, fault)
	}
	t := p.byURL[r.TypeURL]
	if t == nil || !t.requested {
		return Decision{NotRequested: true}, nil
	}
	if fault != nil {
		return p.nack(t, r.Nonce, fault, now), nil
	}
	t.applying = true
	t.unanswered.answered(r)
	d := Decision{Accept: true, subscribed: t.subscribed, acceptedVersion: t.sotw.version, noneNACKed: t.nacks == 0, unasked: t.answered, contentVersions: p.ContentVersions}
	if last := p.LastVersions[r.TypeURL]; last != nil && last.domain == p.Domain {
		d.otherOrigins = last.otherOrigins
	}
	return d, nil
}

func (p *protocolState) Applied(r *xds.Response) {
	t := p.byURL[r.TypeURL]
	t.applying, t.answered = false, true
	if !p.echoesNonce || !ambiguousHeartbeats(r, t.nacks == 0) {
		t.accepted()
		if p.echoesNonce {
			t.sotw.version = r.Version
		}
		if !t.subscribed.empty() { // otherwise the type is no longer wanted
			p.record(t, r).version = t.sotw.version
		}
	}
	p.ack(t, r.Nonce)
}

// ack queues an ACK.
func (p *protocolState) ack(t *typeState, nonce string) {
	if p.echoesNonce {
		t.sotw.nonce, t.sotw.ackDue = nonce, true
	} else {
		t.addReply(reply{nonce: nonce})
	}
}

// nack queues a NACK.
//
// Many origins answer a NACK with the same response at once, as go-control-plane's SotW server
// does. So only the first NACK in a row is sent at once. The delay of the others grows, even if
// their faults differ, because an origin may alternate. The delay is per type; other types go on.
//
// A changed interest shortens the delay to MinNACKDelay, because its answer may be a good response.
// In SotW the change cannot go before the NACK: the origin would take it for the ACK. In delta it
// has no nonce and does not wait.
func (p *protocolState) nack(t *typeState, nonce string, fault error, now time.Time) Decision {
	msg := fault.Error()
	msg = strings.ToValidUTF8(msg[:min(len(msg), maxFault)], "�")
	d := Decision{NACKsInARow: t.nacks + 1, NewFault: t.nacks == 0 || msg != t.lastFault && t.delayedUntil().IsZero()}
	t.nacks, t.lastFault = d.NACKsInARow, msg
	t.sotw.nacked(nonce)
	r := reply{nonce: nonce, fault: msg}
	if repeats := d.NACKsInARow - 1; repeats > 0 {
		delay := p.NACKDelay(repeats)
		r.due = now.Add(delay)
		r.soon = now.Add(min(delay, p.MinNACKDelay))
	}
	t.addReply(r)
	return d
}

// Counts are the counted events of a response.
type Counts struct {
	NotRequested     int    // resources without a subscription: dropped, no fault (P65)
	NotRequestedName string // the last one's
	Renewed          int    // heartbeats that renewed a resource
	Stale            int    // heartbeats of versions that are not held (P62)

	bodyless int // heartbeats and unresolved aliases: no fault (P18)
}

// BuildUpdate makes an update of an accepted response, given the newest held snapshot. Resources
// that did not change share memory with the snapshot.
func BuildUpdate(v xds.Variant, d Decision, r *xds.Response, snap *snapshot.Snapshot, now time.Time) (snapshot.Update, Counts) {
	t, sub := xds.TypeOf(r.TypeURL), d.subscribed
	u := snapshot.Update{Type: r.TypeURL, Version: r.Version, Wildcard: sub.wildcard, WildcardID: sub.id, Received: now}
	u.Partial = u.Wildcard && v == xds.Delta
	var n Counts
	counted := func(name string, requested bool) bool {
		if !requested {
			n.NotRequested++
			n.NotRequestedName = name
		}
		return requested
	}
	u.Unversioned = r.Version == ""
	u.Changed = make([]*xds.Resource, 0, len(r.Resources))
	for i := range r.Resources {
		raw := &r.Resources[i]
		switch {
		case !raw.HasBody():
			n.bodyless++
			held := sub.part(snap).Resource(raw.Name)
			if raw.Unresolved(held) {
				if answer, requested := raw.TakeUnresolved(sub.names); counted(raw.Name, requested) {
					u.Unresolved = append(u.Unresolved, answer)
				}
				continue
			}
			ttl, timed := raw.TTL()
			if !timed || !counted(raw.Name, sub.wildcard || raw.RequestedBy(sub.names)) {
				continue
			}
			if renews(v, raw, r, held, d) {
				u.Changed = append(u.Changed, held.RenewTTL(ttl, now))
				n.Renewed++
			} else {
				n.Stale++
			}
		case counted(raw.Name, sub.wildcard || raw.RequestedBy(sub.names)):
			res, held := raw.Take(t, sub.part(snap).SharedWith(raw.Name)), sub.part(snap).Resource(raw.Name)
			if d.unasked && !d.otherOrigins.Has(raw.Name) {
				newVersion := d.newVersion(v, raw, r, held)
				if newVersion {
					u.Pushed = append(u.Pushed, raw.Name)
				}
				if res.Same(held) && (res.Leased || t.ResendEqual && newVersion && v == xds.Delta) {
					res = res.Resent()
				}
			}
			u.Changed = append(u.Changed, res.StartTTL(now))
		case sub.part(snap).Requested(raw.Name, sub.names):
			u.Removed = append(u.Removed, raw.Name) // it lost the subscribed alias
		}
	}
	errors, absent := resourceErrors(sub, r, snap)
	u.Errors, u.Removed = errors, append(u.Removed, absent...)
	u.Removed = append(u.Removed, missing(v, t, d, r, snap, n.bodyless)...)
	if v == xds.SotW && ambiguousHeartbeats(r, d.noneNACKed) {
		u.Version, u.Unversioned = d.acceptedVersion, false
	}
	for _, name := range r.Removed {
		if counted(name, sub.wildcard || sub.part(snap).Requested(name, sub.names)) {
			u.Removed = append(u.Removed, name)
		}
	}
	return u, n
}

// newVersion reports whether a response has a resource under a new version: in delta the
// resource's, in SotW version_info.
func (d Decision) newVersion(v xds.Variant, raw *xds.ParsedResource, r *xds.Response, held *xds.Resource) bool {
	if v == xds.SotW {
		return r.Version != d.acceptedVersion
	}
	return held == nil || raw.OriginVersion != d.versionOf(held)
}

// versionOf is the version under which the origin knows a held resource.
func (d Decision) versionOf(held *xds.Resource) string {
	if d.contentVersions {
		return held.Version.String()
	}
	return held.OriginVersion
}

// absence says which held resources a response removes by leaving them out (P65).
type absence uint8

const (
	removesNothing absence = iota
	removesPlaces          // those that are told apart by their place
	removesUnnamed         // those, and the one without a name
	removesAll
)

// absenceIn returns what absence from a response means. Only a SotW response can remove by absence.
// Of an unknown type it removes resources without names of their own, under the wildcard. A
// response with such resources in it is the full state of the type (P3). A delta response ends what
// a SotW origin told apart by place.
func absenceIn(v xds.Variant, t xds.Type, sub subscription, r *xds.Response, snap *snapshot.Snapshot) absence {
	unknown := !t.Known() && sub.wildcard
	switch {
	case v == xds.SotW && (t.FullState || unknown && r.LacksNames):
		return removesAll
	case v == xds.SotW && unknown:
		return removesUnnamed
	case unknown && snap.HasPlaces():
		return removesPlaces
	}
	return removesNothing
}

func (a absence) removes(name string) bool {
	return a == removesAll || a >= removesPlaces && xds.IsPlace(name) || a >= removesUnnamed && name == ""
}

// missing returns the names that a response removes by leaving them out (P65).
//   - A response of heartbeats alone removes nothing.
//   - Only held names of the part that the response answers are removed. A name that was subscribed
//     and never received stays pending, also under a wildcard. A held name was in a response since
//     it was last subscribed: the group forgets names that are unsubscribed.
//   - A resource for which the response has an error is not left out; the error says what holds
//     (P39).
//   - A name that another relay brought counts as received.
func missing(v xds.Variant, t xds.Type, d Decision, r *xds.Response, snap *snapshot.Snapshot, bodyless int) []string {
	sub := d.subscribed
	a := absenceIn(v, t, sub, r, snap)
	if a == removesNothing || sub.empty() || bodyless > 0 && bodyless == len(r.Resources) {
		return nil
	}
	there := make(map[string]struct{}, len(r.Resources))
	for i := range r.Resources {
		there[r.Resources[i].Name] = struct{}{}
	}
	for _, e := range r.Errors {
		there[e.Name] = struct{}{}
	}
	var gone []string
	for res := range sub.covers(snap) {
		if _, ok := there[res.Name]; !ok && a.removes(res.Name) {
			gone = append(gone, res.Name)
		}
	}
	for name := range d.brought.All() {
		if _, ok := there[name]; !ok && a.removes(name) && sub.names.Has(name) && sub.part(snap).Unanswered(name) {
			gone = append(gone, name)
		}
	}
	// Clients may still hold resources that expired here. They are told of the removal.
	for name := range sub.part(snap).ExpiredNames {
		if _, ok := there[name]; !ok && a.removes(name) && (sub.wildcard || sub.part(snap).Requested(name, sub.names)) {
			gone = append(gone, name)
		}
	}
	return gone
}

// A resource without a body and with a TTL is a heartbeat (P62). It renews the held resource if the
// versions match. In delta the heartbeat has its own version; in SotW too, if the wrapper has one.
// Otherwise its version is the version_info accepted last or a newer one, because the resource has
// not changed since. After a NACK that is unknown, because the NACKed response may have held
// another version. A heartbeat of any other version is stale and renews nothing.

// renews reports whether a resource without a body is a heartbeat of the resource held under its
// name. Heartbeats of another origin's resources do not count.
func renews(v xds.Variant, raw *xds.ParsedResource, r *xds.Response, held *xds.Resource, d Decision) bool {
	if held == nil || d.otherOrigins.Has(held.Name) {
		return false
	}
	if v == xds.Delta || raw.OriginVersion != "" {
		return raw.OriginVersion == d.versionOf(held)
	}
	return d.noneNACKed || r.Version == d.acceptedVersion
}

// ambiguousHeartbeats reports whether a SotW response has only heartbeats, after a NACK. They may
// mean the NACKed version. Such a response is ACKed under the held version.
func ambiguousHeartbeats(r *xds.Response, noneRefused bool) bool {
	return !noneRefused && len(r.Resources) > 0 &&
		!slices.ContainsFunc(r.Resources, func(raw xds.ParsedResource) bool { return raw.HasBody() })
}

// resourceErrors returns the resource_errors of a response. It also returns the names that they
// report as non-existent, except those that the same response contains (P39, P25).
func resourceErrors(sub subscription, r *xds.Response, snap *snapshot.Snapshot) (errors []*xds.ResourceError, absent []string) {
	if len(r.Errors) == 0 {
		return nil, nil
	}
	brought := make(map[string]struct{}, len(r.Resources))
	for i := range r.Resources {
		if r.Resources[i].HasBody() {
			brought[r.Resources[i].Name] = struct{}{}
		}
	}
	for _, e := range r.Errors {
		if !sub.wildcard && !sub.part(snap).Requested(e.Name, sub.names) {
			continue
		}
		errors = append(errors, e)
		if _, there := brought[e.Name]; e.Absent() && !there {
			absent = append(absent, e.Name)
		}
	}
	return errors, absent
}
