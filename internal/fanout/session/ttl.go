package session

import (
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The relay passes an origin's heartbeat on to the clients that have the resource whose TTL it
// renews (P62). A heartbeat is a Resource with a TTL and without a body, at the version that the
// client knows:
//
//   - In delta that is the resource's own version. Heartbeats are sent with any other content.
//   - In SotW it is the version_info that the client acknowledged last. Heartbeats are sent alone.
//     Beside a change, the whole resource is sent.
//   - A full-state response is sent whole, since clients delete what it does not have.
//
// The whole resource is also sent to a client that cannot read a Resource without a body, such as
// gRPC, and to a client whose TTL is over, since it has dropped the resource.
//
// For a slow client renewals are merged as changes are: a TTL is renewed if it starts later in the
// newest snapshot than in what the client was sent.

// renewalKey is what decides how TTLs are renewed for a client; zero: no TTL is renewed.
type renewalKey struct {
	second  int64  // the time for which remaining TTLs are given: responses of one second are shared
	version string // SotW, not full-state: the version_info that the client acknowledged last
	// off: the client rejected a full-state response. A renewal is no change, and does not send the
	// response again (P15).
	off bool
}

func (c comparison) renewalKey(now time.Time) (k renewalKey) {
	s := c.s
	if !s.form.WithTTL || !c.to.HasTTLs() {
		return k
	}
	k.second = now.Unix()
	switch {
	case s.fullState():
		k.off = s.nacks.lastWasNACK
	case s.form.Variant == xds.SotW:
		k.version = s.acked.versionInfo
	}
	return k
}

// anyRenewal reports whether there is a renewal for the client.
func (c comparison) anyRenewal() bool {
	s := c.s
	if !s.form.WithTTL || s.fullState() && s.nacks.lastWasNACK {
		return false
	}
	return slices.ContainsFunc(c.to.Renewed(s.delivered.snapshot, s.delivered.sentBy(s.sub.effective)), func(name string) bool {
		had, was := c.had(name)
		has, is := c.look(name)
		return was == snapshot.Present && is == snapshot.Present && has.Renewed(had)
	})
}

// addRenewals puts the renewals of TTLs into an own response. It leaves out the names that the
// response includes already, and those that the client rejected (P15).
func (p planner) addRenewals(included []string) {
	s := p.s
	if !s.form.WithTTL {
		return
	}
	k := p.renewalKey(p.At)
	p.content.HeartbeatVersion = k.version
	for _, name := range p.to.Renewed(s.delivered.snapshot, s.delivered.sentBy(s.sub.effective)) {
		if _, found := slices.BinarySearch(included, name); found || anyIncludes(s.nacks.list, name) {
			continue
		}
		had, was := p.had(name)
		has, is := p.look(name)
		if was != snapshot.Present || is != snapshot.Present || has.Expired(p.At) {
			continue
		}
		if e := p.to.Error(s.sub.effective, name); p.content.renew(k, s.form, had, has, p.At) && e != nil {
			p.content.Errors = append(p.content.Errors, e)
		}
	}
}

// renew puts the renewal of a TTL into the content, for a client that was sent had. It reports
// whether the whole resource is sent.
func (c *Content) renew(k renewalKey, form xds.ResourceFormat, had, has *xds.Resource, now time.Time) (whole bool) {
	switch {
	case !form.WithTTL || !has.Renewed(had):
		return false
	case c.full:
		if !k.off {
			c.forced = true
			c.Renewed++
		}
		return false
	case had.Expired(now):
		c.Changed = append(c.Changed, has)
		return true
	}
	c.Renewed++
	if form.Heartbeats && (form.Variant == xds.Delta || k.version != "") {
		c.Heartbeats = append(c.Heartbeats, has)
		return false
	}
	c.whole = append(c.whole, has)
	return true
}

// placeRenewals decides how renewals are sent beside the rest of a response that is not full-state,
// for a client with sub.
func (c *Content) placeRenewals(form xds.ResourceFormat, sub *snapshot.Subscription, to *snapshot.Snapshot) {
	if form.Variant == xds.SotW && len(c.Changed)+len(c.whole)+len(c.Errors) > 0 {
		for _, r := range c.Heartbeats {
			if e := to.Error(sub, r.Name); e != nil && !slices.Contains(c.Errors, e) {
				c.Errors = append(c.Errors, e) // the resource would clear it (P39)
			}
		}
		c.whole, c.Heartbeats = append(c.whole, c.Heartbeats...), nil
	}
	if len(c.Heartbeats) == 0 || form.Variant == xds.Delta {
		c.HeartbeatVersion = ""
	}
	if len(c.whole) > 0 {
		c.Changed = append(c.Changed, c.whole...)
		slices.SortFunc(c.Changed, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) })
		c.whole = nil
	}
}

// outlives reports whether the client would keep had, which it was sent, for longer than the
// resource lived. That happens to a slow client: the resource expired before its last TTL could be
// sent. Then the client is sent a removal, if its variant has one.
func outlives(form xds.ResourceFormat, full bool, had, expired *xds.Resource) bool {
	return form.WithTTL && (form.Variant == xds.Delta || full) && expired.ExpiresBefore(had)
}
