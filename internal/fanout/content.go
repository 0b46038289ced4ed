package fanout

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
)

// content is what a response says.
type content struct {
	changed []*xds.Resource
	beats   []*xds.Resource // of which only the TTL goes out (P62)
	whole   []*xds.Resource // renewed by the whole resource; until settled
	removed []string
	errors  []*xds.ResourceError
	follows []string // what follows it (P37)

	any     bool     // it is sent even if there is nothing in it
	full    bool     // it is all that the client asked for (P30)
	quiet   bool     // nothing in it changed: it renews TTLs
	renewed int      // how many, be it by the whole resource
	took    string   // SotW: the version_info of heartbeats alone
	later   []string // names whose error is to follow (P39)
}

// empty reports whether there is nothing to send.
func (c *content) empty() bool {
	return len(c.changed)+len(c.beats)+len(c.removed)+len(c.errors) == 0 && !c.any
}

// finish completes the content of a response that is not full-state.
func (c content) finish(k *frameKey, to *xds.Snapshot) content {
	c.any = c.any || k.force
	c.changed = once(c.changed)
	c.quiet = len(c.changed)+len(c.removed)+len(c.errors) == 0 && !c.any
	c.follows = followers(c.changed)
	c.settle(k.form, k.sub, to)
	c.part()
	return c
}

// compare computes a regular response: the difference between what the client
// has been sent and a snapshot, or, for a full-state SotW type, all of the
// snapshot if there is any difference.
func (p *Plan) compare() content {
	k, to, now := &p.key, p.to, p.at
	c := content{any: k.force, full: k.full, took: k.beat.took}
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
			c.changed = append(c.changed, has)
		case said:
			c.removed = append(c.removed, name)
		case is == xds.Present && was == xds.Present:
			said = c.renew(k.beat, k.form, had, has, now)
		}
		if err != nil && (err != told || said && is == xds.Present) {
			c.errors = append(c.errors, err)
		}
	}
	if !k.full {
		return c.finish(k, to)
	}
	if c.empty() {
		return content{}
	}
	c.quiet = len(c.changed)+len(c.removed)+len(c.errors) == 0 && !k.force
	c.follows = followers(c.changed)
	c.all(k, to, now)
	return c
}

// names are those that may differ between what was sent and what is to be seen,
// sorted.
func (p *Plan) names() []string {
	names := p.base.candidates(p.to, p.key.sub)
	if p.key.form.Timed {
		names = append(names, p.base.renewed(p.to, p.key.sub)...)
	}
	sortUnique(&names)
	return names
}

// all makes the content that of a full-state response: all that the client is
// to see, and all errors, since a resource that is there clears its own.
func (c *content) all(k *frameKey, to *xds.Snapshot, now time.Time) {
	c.changed, c.beats, c.removed, c.errors, c.any, c.took = nil, nil, nil, nil, true, ""
	if k.sub.Wildcard {
		c.changed = make([]*xds.Resource, 0, to.Len())
	}
	to.Covered(k.sub, func(r *xds.Resource) bool {
		c.changed = append(c.changed, r)
		return true
	})
	c.changed = slices.DeleteFunc(c.changed, func(r *xds.Resource) bool { return r.Expired(now) })
	to.Errors(k.sub, func(e *xds.ResourceError) bool {
		c.errors = append(c.errors, e)
		return true
	})
	if k.anew {
		c.follows = followers(c.changed)
	}
}

// share returns the frame with this content, building it if no snapshot of any key
// has one that says the same. Two workers may build the same at the same time, if
// they came to it by different keys; one of the two stays.
func (fc *frameCache) share(p *Plan, replica string, c content) *Frame {
	if c.empty() {
		return emptyFrame
	}
	form := p.key.form
	body := c.body(p, replica)
	version := body.Version
	var lefts []time.Duration
	if form.Timed {
		lefts = c.lefts(p.at)
	}
	h := c.hash(form, version, lefts)
	fc.mu.Lock()
	at := fc.byContent.get(h)
	fc.mu.Unlock()
	if at != nil && at.frame.holds(form, version, &c, lefts) {
		return at.frame
	}
	f := sharedFrame(h, func(f *Frame) bool { return f.speaks(body, &c, p.to, lefts) }, func() *Frame {
		return newFrame(body, &c, p.to, lefts)
	}).at(p.to.Received)
	fc.mu.Lock()
	at = new(cell)
	fc.byContent.put(h, at) // in the place of another frame of this hash, if there is one
	fc.byContent.finish(h, at, made{frame: f})
	fc.mu.Unlock()
	return f
}

// body is the message that says it.
func (c *content) body(p *Plan, replica string) *xds.Body {
	version := p.to.Version
	if c.took != "" {
		version = c.took
	}
	return &xds.Body{
		Form: p.key.form, Type: p.to.Type.URL, Version: version, Identifier: identifier(replica, p.to),
		Resources: c.changed, Beats: c.beats, Removed: c.removed, Errors: c.errors, Now: p.at,
	}
}

// manifest of a response of a snapshot.
func (c *content) manifest(to *xds.Snapshot) *manifest {
	m := &manifest{follows: c.follows, version: to.Version, received: to.Received, took: c.took, later: c.later, quiet: c.quiet, renewed: c.renewed}
	m.names = make([]string, 0, len(c.changed)+len(c.beats)+len(c.removed)+len(c.errors))
	of := make(map[string]xds.Version, len(c.changed)+len(c.beats))
	for _, rs := range [...][]*xds.Resource{c.changed, c.beats} {
		for _, r := range rs {
			if r.Unresolved() {
				continue // said once, and to no end that a refusal would change
			}
			m.names = append(m.names, r.Name)
			of[r.Name] = r.Version
		}
	}
	m.names = append(m.names, c.removed...)
	for _, e := range c.errors {
		m.names = append(m.names, e.Name)
	}
	sortUnique(&m.names)
	m.versions = make([]xds.Version, len(m.names))
	for i, n := range m.names {
		m.versions[i] = of[n]
	}
	return m
}

// lefts is what is left at now of the TTLs in the content; nil if there is none.
func (c *content) lefts(now time.Time) (out []time.Duration) {
	for _, rs := range [...][]*xds.Resource{c.changed, c.beats} {
		for _, r := range rs {
			if r.TTL() > 0 {
				out = append(out, r.Left(now))
			}
		}
	}
	return out
}

// holds reports whether this is what a frame of the same snapshot is made of.
func (f *Frame) holds(form xds.Form, version string, c *content, lefts []time.Duration) bool {
	return f.form == form && f.wire == version && f.quiet == c.quiet &&
		slices.Equal(f.resources, c.changed) && slices.Equal(f.beats, c.beats) && slices.Equal(f.removed, c.removed) &&
		slices.Equal(f.errors, c.errors) && slices.Equal(f.lefts, lefts) && slices.Equal(f.follows, c.follows) &&
		slices.Equal(f.later, c.later)
}

var contentSeed = maphash.MakeSeed()

// hash is a hash over the identity of the resources, which are shared wherever
// they are equal, and the rest.
func (c *content) hash(form xds.Form, version string, lefts []time.Duration) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	maphash.WriteComparable(&h, form)
	_, _ = h.WriteString(version)
	for _, rs := range [...][]*xds.Resource{c.changed, c.beats} {
		maphash.WriteComparable(&h, len(rs))
		for _, r := range rs {
			maphash.WriteComparable(&h, r)
		}
	}
	for _, n := range c.removed {
		_, _ = h.WriteString(n)
		_ = h.WriteByte(0)
	}
	for _, e := range c.errors {
		maphash.WriteComparable(&h, e)
	}
	for _, d := range lefts {
		maphash.WriteComparable(&h, d)
	}
	return h.Sum64()
}

// byName sorts resources.
func byName(rs []*xds.Resource) {
	slices.SortFunc(rs, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) })
}
