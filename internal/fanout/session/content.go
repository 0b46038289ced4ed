package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Content is what a response includes.
type Content struct {
	Changed    []*xds.Resource
	Heartbeats []*xds.Resource // heartbeats: of these only the TTL is sent (P62)
	Removed    []string
	Errors     []*xds.ResourceError
	Summary

	forced bool            // it is sent even if it is empty
	full   bool            // it is all that the client requests (P30)
	whole  []*xds.Resource // heartbeats that send the whole resource; nil after placeRenewals
}

// Summary is what sessions keep of a response's content.
type Summary struct {
	Follows          []string // names of the type's follower that are sent after it (P37)
	OnlyRenewals     bool     // nothing in it changed: it only renews TTLs
	Renewed          int      // number of TTLs that it renews, also by the whole resource
	HeartbeatVersion string   // SotW: version_info of a response of heartbeats alone (P62)
	LaterErrors      []string // names whose errors are sent later, since their resources are in the response (P39)
}

// Empty reports whether there is nothing to send.
func (c *Content) Empty() bool {
	return len(c.Changed)+len(c.Heartbeats)+len(c.Removed)+len(c.Errors) == 0 && !c.forced
}

// Content computes what the response includes. It may be empty: then there is nothing to send.
func (p *Plan) Content() Content {
	if p.do == own {
		return p.content.finish(&p.Key, p.To)
	}
	return p.compare()
}

// compare computes a shared response: the difference between what the client was sent and the
// snapshot. For a full-state SotW type it is all of the snapshot, if anything differs.
func (p *Plan) compare() Content {
	k, to, now := &p.Key, p.To, p.At
	c := Content{forced: k.force, full: k.full, Summary: Summary{HeartbeatVersion: k.renewals.version}}
	names := p.base.candidates(to, k.sub)
	if k.form.WithTTL {
		names = append(names, to.Renewed(p.base.snapshot, p.base.sentBy(k.sub))...)
	}
	sortUnique(&names)
	for _, name := range names {
		had, was := p.base.look(k.sub, name)
		has, is := see(to, k.sub, name, had, was)
		if is == snapshot.Present && has.Expired(now) {
			has, is = nil, snapshot.Expired // the group has not dropped it yet (P62)
		}
		sentErr, err := p.base.error(k.sub, name), to.Error(k.sub, name)
		if p.base.ignores(was, is) {
			had, was, sentErr = nil, snapshot.Pending, nil
		}
		sends := differs(k.form, k.full, k.sub.Names.Has(name), had, was, has, is) || clearsError(sentErr, err, is)
		switch {
		case sends && (is == snapshot.Present || is == snapshot.Unresolvable):
			c.Changed = append(c.Changed, has)
		case sends:
			c.Removed = append(c.Removed, name)
		case is == snapshot.Present && was == snapshot.Present:
			sends = c.renew(k.renewals, k.form, had, has, now)
		}
		if err != nil && (err != sentErr || sends && is == snapshot.Present) {
			c.Errors = append(c.Errors, err)
		}
	}
	if !k.full {
		return c.finish(k, to)
	}
	if c.Empty() {
		return Content{}
	}
	c.OnlyRenewals = len(c.Changed)+len(c.Removed)+len(c.Errors) == 0 && !k.force
	c.Follows = followers(c.Changed)
	c.fill(k, to, now)
	return c
}

// fill sets the content of a full-state response: all resources that the client is to have. It
// includes all errors too, since a resource in a response clears its error.
func (c *Content) fill(k *FrameKey, to *snapshot.Snapshot, now time.Time) {
	c.Changed, c.Heartbeats, c.Removed, c.Errors, c.forced, c.HeartbeatVersion = nil, nil, nil, nil, true, ""
	if k.sub.Wildcard {
		c.Changed = make([]*xds.Resource, 0, to.Len())
	}
	to.Covered(k.sub, func(r *xds.Resource) bool {
		c.Changed = append(c.Changed, r)
		return true
	})
	c.Changed = slices.DeleteFunc(c.Changed, func(r *xds.Resource) bool { return r.Expired(now) })
	to.Errors(k.sub, func(e *xds.ResourceError) bool {
		c.Errors = append(c.Errors, e)
		return true
	})
	if k.allNew {
		c.Follows = followers(c.Changed)
	}
}

// finish completes the content of a response that is not full-state.
func (c Content) finish(k *FrameKey, to *snapshot.Snapshot) Content {
	c.forced = c.forced || k.force
	c.Changed = withoutDuplicates(c.Changed)
	c.OnlyRenewals = len(c.Changed)+len(c.Removed)+len(c.Errors) == 0 && !c.forced
	c.Follows = followers(c.Changed)
	c.placeRenewals(k.form, k.sub, to)
	c.postponeErrors()
	return c
}

// postponeErrors moves the errors of names whose resources are in the same response to the next
// one: a client could not know which of the two is newer. An origin's error (P39) is sent once to
// each client that requests the name, and the next resource of that name ends it. A full-state
// response has both, since it has to have every resource.
func (c *Content) postponeErrors() {
	if c.full || len(c.Errors) == 0 {
		return
	}
	in := make(map[string]struct{}, len(c.Changed))
	for _, r := range c.Changed {
		in[r.Name] = struct{}{}
	}
	c.Errors = slices.DeleteFunc(slices.Clone(c.Errors), func(e *xds.ResourceError) bool {
		_, both := in[e.Name]
		if both {
			c.LaterErrors = append(c.LaterErrors, e.Name)
		}
		return both
	})
}

// Body is the message with the content, without an identifier.
func (p *Plan) Body(c *Content) xds.ResponseBody {
	version := p.To.Version
	if c.HeartbeatVersion != "" {
		version = c.HeartbeatVersion
	}
	return xds.ResponseBody{
		ResourceFormat: p.Key.form, Type: p.To.Type.URL, Version: version,
		Resources: c.Changed, Heartbeats: c.Heartbeats, Removed: c.Removed, Errors: c.Errors, Now: p.At,
	}
}

// Manifest lists what a response included. Sessions keep it, and not the body, until the client has
// answered.
type Manifest struct {
	names    []string      // in resources, removed and errors, sorted
	versions []xds.Version // of the names, in the same order; zero: removed

	Parts []*Manifest // of a response that is sent in parts (P38); nil: it is not
	Summary
	Received time.Time // when the origin sent the newest change in the snapshot
	Version  string    // of the snapshot: version_info or system_version_info
}

// Manifest is that of a response with the content, made of a snapshot.
func (c *Content) Manifest(to *snapshot.Snapshot) *Manifest {
	m := &Manifest{Summary: c.Summary, Version: to.Version, Received: to.Received}
	m.names = make([]string, 0, len(c.Changed)+len(c.Heartbeats)+len(c.Removed)+len(c.Errors))
	versions := make(map[string]xds.Version, len(c.Changed)+len(c.Heartbeats))
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Heartbeats} {
		for _, r := range rs {
			if r.Unresolved() {
				continue // it is sent once, and a NACK of it changes nothing
			}
			m.names = append(m.names, r.Name)
			versions[r.Name] = r.Version
		}
	}
	m.names = append(m.names, c.Removed...)
	for _, e := range c.Errors {
		m.names = append(m.names, e.Name)
	}
	sortUnique(&m.names)
	m.versions = make([]xds.Version, len(m.names))
	for i, n := range m.names {
		m.versions[i] = versions[n]
	}
	return m
}

// version returns the version of a name in the response, zero if it was removed, and whether the
// response included it.
func (m *Manifest) version(name string) (xds.Version, bool) {
	i, included := slices.BinarySearch(m.names, name)
	if !included {
		return xds.Version{}, false
	}
	return m.versions[i], true
}

// followers are the names of the resources that follow these, sorted. P37: an EDS cluster's
// endpoints follow it.
func followers(rs []*xds.Resource) []string {
	var out []string
	for _, r := range rs {
		if r.Follows != "" {
			out = append(out, r.Follows)
		}
	}
	sortUnique(&out)
	return out
}

// withoutDuplicates removes repeated entries of changed. Aliases that the origin could not resolve
// may share one answer.
func withoutDuplicates(changed []*xds.Resource) []*xds.Resource {
	var seen map[uint64]bool
	return slices.DeleteFunc(changed, func(r *xds.Resource) bool {
		answer := r.UnresolvedID()
		if answer == 0 {
			return false
		}
		if seen == nil {
			seen = make(map[uint64]bool)
		}
		twice := seen[answer]
		seen[answer] = true
		return twice
	})
}
