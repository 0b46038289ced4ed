package session

import (
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
)

// Content is what a response says.
type Content struct {
	Changed []*xds.Resource
	Beats   []*xds.Resource // of which only the TTL goes out (P62)
	Removed []string
	Errors  []*xds.ResourceError
	Follows []string // what follows it (P37)

	Quiet   bool     // nothing in it changed: it renews TTLs
	Renewed int      // how many, be it by the whole resource
	Took    string   // SotW: the version_info of heartbeats alone
	Later   []string // names whose error is to follow (P39)

	any   bool            // it is sent even if there is nothing in it
	full  bool            // it is all that the client asked for (P30)
	whole []*xds.Resource // renewed by the whole resource; until settled
}

// Empty reports whether there is nothing to send.
func (c *Content) Empty() bool {
	return len(c.Changed)+len(c.Beats)+len(c.Removed)+len(c.Errors) == 0 && !c.any
}

// finish completes the content of a response that is not full-state.
func (c Content) finish(k *FrameKey, to *xds.Snapshot) Content {
	c.any = c.any || k.force
	c.Changed = once(c.Changed)
	c.Quiet = len(c.Changed)+len(c.Removed)+len(c.Errors) == 0 && !c.any
	c.Follows = followers(c.Changed)
	c.settle(k.form, k.sub, to)
	c.part()
	return c
}

// Content computes what the response says. It may be empty: then there is nothing to send.
func (p *Plan) Content() Content {
	if p.do == irregular {
		return p.content.finish(&p.Key, p.To)
	}
	return p.compare()
}

// compare computes a regular response: the difference between what the client
// has been sent and a snapshot, or, for a full-state SotW type, all of the
// snapshot if there is any difference.
func (p *Plan) compare() Content {
	k, to, now := &p.Key, p.To, p.At
	c := Content{any: k.force, full: k.full, Took: k.beat.took}
	for _, name := range p.names() {
		b := p.base
		had, was := b.look(k.sub, name)
		has, is := see(to, k.sub, name, had, was)
		if is == xds.Present && has.Expired(now) {
			has, is = nil, xds.Lapsed // though the group has yet to let go of it (P62)
		}
		told, err := b.error(k.sub, name), to.Error(k.sub, name)
		if b.again(was, is) {
			had, was, told = nil, xds.Pending, nil
		}
		said := differs(k.form, k.full, k.sub.Names.Has(name), had, was, has, is) || clears(told, err, is)
		switch {
		case said && (is == xds.Present || is == xds.Unresolvable):
			c.Changed = append(c.Changed, has)
		case said:
			c.Removed = append(c.Removed, name)
		case is == xds.Present && was == xds.Present:
			said = c.renew(k.beat, k.form, had, has, now)
		}
		if err != nil && (err != told || said && is == xds.Present) {
			c.Errors = append(c.Errors, err)
		}
	}
	if !k.full {
		return c.finish(k, to)
	}
	if c.Empty() {
		return Content{}
	}
	c.Quiet = len(c.Changed)+len(c.Removed)+len(c.Errors) == 0 && !k.force
	c.Follows = followers(c.Changed)
	c.all(k, to, now)
	return c
}

// names are those that may differ between what was sent and what is to be seen,
// sorted.
func (p *Plan) names() []string {
	names := p.base.candidates(p.To, p.Key.sub)
	if p.Key.form.Timed {
		names = append(names, p.base.renewed(p.To, p.Key.sub)...)
	}
	sortUnique(&names)
	return names
}

// all makes the content that of a full-state response: all that the client is
// to see, and all errors, since a resource that is there clears its own.
func (c *Content) all(k *FrameKey, to *xds.Snapshot, now time.Time) {
	c.Changed, c.Beats, c.Removed, c.Errors, c.any, c.Took = nil, nil, nil, nil, true, ""
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
	if k.anew {
		c.Follows = followers(c.Changed)
	}
}

// Body is the message that says the content; identifier is its control_plane.identifier.
func (p *Plan) Body(c *Content, identifier string) *xds.Body {
	version := p.To.Version
	if c.Took != "" {
		version = c.Took
	}
	return &xds.Body{
		Form: p.Key.form, Type: p.To.Type.URL, Version: version, Identifier: identifier,
		Resources: c.Changed, Beats: c.Beats, Removed: c.Removed, Errors: c.Errors, Now: p.At,
	}
}

// Manifest is that of a response that says the content, made of a snapshot.
func (c *Content) Manifest(to *xds.Snapshot) *Manifest {
	m := &Manifest{Follows: c.Follows, Version: to.Version, Received: to.Received, Took: c.Took, Later: c.Later, Quiet: c.Quiet, Renewed: c.Renewed}
	m.names = make([]string, 0, len(c.Changed)+len(c.Beats)+len(c.Removed)+len(c.Errors))
	of := make(map[string]xds.Version, len(c.Changed)+len(c.Beats))
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Beats} {
		for _, r := range rs {
			if r.Unresolved() {
				continue // said once, and to no end that a refusal would change
			}
			m.names = append(m.names, r.Name)
			of[r.Name] = r.Version
		}
	}
	m.names = append(m.names, c.Removed...)
	for _, e := range c.Errors {
		m.names = append(m.names, e.Name)
	}
	sortUnique(&m.names)
	m.versions = make([]xds.Version, len(m.names))
	for i, n := range m.names {
		m.versions[i] = of[n]
	}
	return m
}

// Lefts is what is left at now of the TTLs in the content; nil if there is none.
func (c *Content) Lefts(now time.Time) (out []time.Duration) {
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Beats} {
		for _, r := range rs {
			if r.TTL() > 0 {
				out = append(out, r.Left(now))
			}
		}
	}
	return out
}

// byName sorts resources.
func byName(rs []*xds.Resource) {
	slices.SortFunc(rs, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) })
}
