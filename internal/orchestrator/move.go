package orchestrator

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// move is a part of a type on its way from the stream that carries it to
// another, where it is asked for as well. Until the two say the same of all that
// is held, the first alone counts, but for what is ahead: so what is answered on
// the new is not dropped from the old before it is, and what the one removes goes
// only once the other does not hold it either (P50). The streams are not in step,
// so to take each name from the one that spoke of it last would go back in time;
// and nothing that clients were told is lost if the move is given up, as long as
// nothing is ahead.
//
// It belongs to the group's goroutine, but for held.
type move struct {
	wild bool // which part
	to   *link

	// What to is held against: what it said, on top of what was held when the
	// move began. To take the rest of what is held for its own would make its
	// first answer, if it is older, a removal of what is newer (P65).
	next *xds.Builder
	held atomic.Pointer[xds.Snapshot]

	origin, version string // of what to said last
	unversioned     bool
	answered        bool                // the wildcard, by to
	spoken          map[string]struct{} // names that to has answered
	apart           map[string]struct{} // names held, of which to does not say the same yet
	ahead           ahead

	// under is to's newest status, since when it is or the move began.
	under *upstream.Status
	since time.Time
}

// depart sends a part to another stream.
func (v *view) depart(wild bool, to *link, now time.Time) {
	m := &move{wild: wild, to: to, next: xds.NewBuilder(v.typ), since: now,
		spoken: make(map[string]struct{}), apart: make(map[string]struct{})}
	part := v.part(wild)
	u := xds.Update{Type: v.typ.URL, Origin: part.Origin(), Wildcard: wild, Received: now}
	if !wild || part.Answered() {
		for r := range part.Resources {
			u.Changed = append(u.Changed, r)
			m.apart[r.Name] = struct{}{}
		}
		for err := range part.Errors {
			m.apart[err.Name] = struct{}{}
		}
	}
	if len(u.Changed) > 0 {
		m.next.Apply(u)
		m.publish(v.names)
	}
	v.move.Store(m)
}

// part of what is held of the type.
func (v *view) part(wild bool) xds.Part { return v.held.Load().Part(wild) }

// at is the stream that carries a part.
func (v *view) at(wild bool) *link {
	if wild {
		return v.wildAt
	}
	return v.namesAt
}

// from is the stream that still counts.
func (m *move) from(v *view) *link { return v.at(m.wild) }

func (m *move) publish(names *xds.NameSet) {
	m.next.Settle(names)
	s, _ := m.next.Snapshot(m.held.Load(), 0)
	m.held.Store(s)
}

// leads reports whether the new stream's word counts for a name at once: it did
// before, or the old one has nothing to say of it. What a wildcard says nothing of
// does not exist, but for what has lapsed.
func (m *move) leads(part xds.Part, name string) bool {
	return m.ahead.has(name) || part.Silent(name) && (!m.wild || part.Known(name))
}

// arrive takes over what to says, and returns what of it counts at once, if
// anything: also that a TTL runs for longer, of what both say (P62).
func (m *move) arrive(v *view, u xds.Update) (early xds.Update, any bool) {
	var led []string // what went with a handle
	for _, name := range u.Removed {
		led = append(led, m.held.Load().Linked(name)...)
	}
	m.next.Apply(u)
	m.publish(v.names)
	m.origin = u.Origin
	if u.Versioned() {
		m.version, m.unversioned = u.Version, u.Unversioned
	}
	m.answered = m.answered || u.Wildcard
	part := v.part(m.wild)
	early, rest := split(v, u, func(names []string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !m.leads(part, n) })
	})
	m.ahead.add(spoken(v, early)...)
	for _, r := range u.Changed {
		m.spoken[r.Name] = struct{}{}
	}
	for _, name := range slices.Concat(u.Removed, led) {
		m.spoken[name] = struct{}{}
	}
	for _, r := range rest.Changed {
		if r.Outlasts(part.Held(r.Name)) {
			early.Changed = append(early.Changed, r)
		}
	}
	m.compare(part, slices.Concat(spoken(v, rest), led))
	return early, !nothingIn(early)
}

// applied takes notice of what was applied to what is held.
func (m *move) applied(v *view, u *xds.Update) { m.compare(v.part(m.wild), spoken(v, *u)) }

// compare notes whether the two streams say the same of names.
func (m *move) compare(part xds.Part, names []string) {
	next := m.held.Load().Part(m.wild)
	for _, n := range names {
		_, spoken := m.spoken[n]
		has := part.Held(n)
		switch {
		case has == nil && part.Error(n) == nil && (!spoken || next.Held(n) == nil):
			delete(m.apart, n) // nothing is to be lost
		case same(part, next, n) && (spoken || has == nil):
			delete(m.apart, n)
		default:
			m.apart[n] = struct{}{}
		}
	}
}

// lost takes notice of what is held no more though nobody said that it is gone
// (P62, P63): there is nothing to wait for, and what the new stream says of it
// counts. It reports whether that says anything.
func (m *move) lost(v *view) bool {
	part, next := v.part(m.wild), m.held.Load().Part(m.wild)
	m.compare(part, slices.Collect(maps.Keys(m.apart)))
	u := xds.Update{Type: v.typ.URL, Origin: m.origin, Version: m.version, Unversioned: m.unversioned, Wildcard: m.wild}
	for name := range part.Lapsed {
		r := next.Held(name)
		if _, spoken := m.spoken[name]; spoken && r != nil {
			m.ahead.add(goesBy(v, r)...)
			u.Changed = append(u.Changed, r)
		}
		m.compare(part, []string{name})
	}
	if len(u.Changed) == 0 {
		return false
	}
	u.Received = m.held.Load().Received // there is one: it has what was found
	v.take(u, 0)
	return true
}

// ended lets go of what to brought and is not to be kept, since its stream has
// ended (P63). It reports whether anything of it counted already: then the old
// stream's word does again.
func (m *move) ended(v *view, u xds.Update) bool {
	m.next.Apply(u)
	m.publish(v.names)
	m.lapsed(v)
	gone := make(map[string]struct{})
	for name := range m.ahead.names {
		if r := v.part(m.wild).Held(name); r != nil && r.Uncacheable {
			for _, n := range goesBy(v, r) {
				gone[n] = struct{}{}
			}
		}
	}
	is := func(name string) bool { _, is := gone[name]; return is }
	any := v.builder.Uncache(m.wild, is)
	m.back(v, is)
	return any
}

// back has the old stream's word count again for names that were ahead, and
// returns what that was.
func (m *move) back(v *view, is func(name string) bool) xds.Update {
	u := m.ahead.end(v, m.wild, is)
	if !nothingIn(u) {
		v.take(u, 0)
	}
	return u
}

// lapsed takes notice of what to holds no more though nobody said that it is gone:
// it has yet to answer that again.
func (m *move) lapsed(v *view) {
	part := v.part(m.wild)
	for name := range m.held.Load().Part(m.wild).Lapsed {
		delete(m.spoken, name)
		m.compare(part, []string{name})
	}
}

// forget lets go of names that nobody wants any more, which v does not have any
// more, and of what came for them alone.
func (m *move) forget(v *view, names []string) {
	was := m.held.Load()
	m.next.ForgetBut(v.names, names...)
	m.publish(v.names)
	var resources []string
	for _, s := range [...]*xds.Snapshot{was, v.held.Load()} {
		for _, name := range names {
			for _, r := range s.Linked(name) {
				if held := s.Part(m.wild).Held(r); held != nil && !held.AskedBy(v.names) {
					resources = append(resources, r)
				}
			}
		}
	}
	for _, name := range slices.Concat(names, resources) {
		delete(m.spoken, name)
		delete(m.apart, name)
	}
	m.ahead.forget(v, names, resources)
}

// arrived reports whether the old stream is not needed any more: the two say the
// same. If the old one is away, what the new one says is the newer; and if the
// new one says nothing of a name for as long as first_answer_timeout,
// that is all that it has to say.
func (m *move) arrived(v *view, now time.Time, patience time.Duration) bool {
	from, waits := m.from(v), m.wild && !m.answered && v.part(true).Answered()
	switch {
	case len(m.apart) == 0 && !waits:
		return true
	case !m.under.Connected:
		return false
	case !from.connected() && !waits && m.spokeOfAll():
		return true
	}
	return !now.Before(m.since.Add(patience))
}

// spokeOfAll reports whether to has answered every name that is held.
func (m *move) spokeOfAll() bool {
	for name := range m.apart {
		if _, spoken := m.spoken[name]; !spoken {
			return false
		}
	}
	return true
}

// due is when the time alone changes something; zero if it does not.
func (m *move) due(patience time.Duration) time.Time {
	at := m.next.NextExpiry()
	if m.under == nil || !m.under.Connected && len(m.ahead.names) == 0 {
		return at
	}
	if over := m.since.Add(patience); at.IsZero() || over.Before(at) {
		return over
	}
	return at
}

// moved ends the move of a part that has arrived, from where it comes from there
// on. It reports whether there is a new snapshot.
func (v *view) moved(now time.Time, patience time.Duration, stateGen uint64) bool {
	m := v.move.Load()
	if m == nil {
		return false
	}
	if s := m.to.status.Load(); s != m.under {
		m.under, m.since = s, now
	}
	if m.next.Expire(now) > 0 {
		m.publish(v.names)
		m.lapsed(v)
	}
	if !m.arrived(v, now, patience) {
		if m.under.Connected || now.Before(m.since.Add(patience)) || len(m.ahead.names) == 0 {
			return false
		}
		u := m.back(v, m.ahead.has)
		changed := v.snapshot(stateGen)
		m.applied(v, &u)
		return changed
	}
	// What the old stream brought and the new one did not, and is not to be kept,
	// goes with it (P63).
	was := v.part(m.wild)
	v.builder.Apply(xds.Update{Type: v.typ.URL, Wildcard: m.wild, Ended: true})
	if m.origin != "" {
		is := m.held.Load().Part(m.wild)
		u := xds.Update{Type: v.typ.URL, Origin: m.origin, Version: m.version, Unversioned: m.unversioned, Wildcard: m.wild, Received: now}
		for name := range m.spoken {
			if r := is.Held(name); r != nil {
				u.Changed = append(u.Changed, r)
			} else if was.Answers(name) && !is.Answers(name) {
				u.Removed = append(u.Removed, name)
			}
		}
		// Also of names of which it said nothing else (P39).
		for err := range is.Errors {
			u.Errors = append(u.Errors, err)
		}
		v.builder.Apply(u)
	}
	if m.wild {
		v.wildAt = m.to
	} else {
		v.namesAt = m.to
	}
	changed := v.held.Load() != nil && v.snapshot(stateGen)
	v.move.Store(nil) // last: from here on its stream is held against what that has
	return changed
}
