package orchestrator

import (
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// move is a part of a type on its way from the stream that carries it to
// another, where it is asked for as well. Until the two say the same of all that
// is held, the first alone counts: so what is answered on the new is not dropped
// from the old before it is, and what the one removes goes only once the other
// does not hold it either (P50). Nothing goes back in time, since the streams are
// not in step, and the move can be given up at any moment.
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

	origin, version string              // of what to said last
	answered        bool                // the wildcard, by to
	spoken          map[string]struct{} // names that to has answered
	apart           map[string]struct{} // names held, of which to does not say the same yet
	ahead           map[string]struct{} // names of which to spoke first, and the old stream does not say the same yet

	// under is to's newest status, since when it is or the move began.
	under *upstream.Status
	since time.Time
}

// depart sends a part to another stream.
func (v *view) depart(wild bool, to *link, now time.Time) {
	m := &move{wild: wild, to: to, next: xds.NewBuilder(v.typ), since: now,
		spoken: make(map[string]struct{}), apart: make(map[string]struct{}), ahead: make(map[string]struct{})}
	part := v.part(wild)
	u := xds.Update{Type: v.typ.URL, Origin: part.Origin(), Wildcard: wild, Received: now}
	if !wild || part.Answered() {
		for r := range part.Resources {
			u.Changed = append(u.Changed, r)
			m.apart[r.Name] = struct{}{}
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

// arrive takes over what to says, and returns what of it counts at once, if
// anything: what it says of names of which nothing was known before it spoke.
// Nobody is to wait for that.
func (m *move) arrive(v *view, u xds.Update) (early xds.Update, any bool) {
	var led []string // what went with a handle
	if !u.Guess {
		for _, name := range u.Removed {
			led = append(led, m.held.Load().Linked(name)...)
		}
	}
	m.next.Apply(u)
	m.publish(v.names)
	if u.Ended {
		m.lapsed(v)
		return u, false
	}
	m.origin, m.version = u.Origin, u.Version
	m.answered = m.answered || u.Wildcard
	part := v.part(m.wild)
	first := func(name string) bool {
		_, ahead := m.ahead[name]
		return !m.wild && (ahead || !part.Known(name))
	}
	early = u
	early.Changed, early.Removed, early.Errors, early.Unresolved = nil, nil, nil, nil
	for _, r := range u.Changed {
		m.say(part, r.Name)
		if first(r.Name) {
			early.Changed = append(early.Changed, r)
			m.ahead[r.Name] = struct{}{}
		}
	}
	for _, name := range u.Removed {
		if !u.Guess {
			m.say(part, name)
		}
		if first(name) {
			early.Removed = append(early.Removed, name)
			m.ahead[name] = struct{}{}
		}
	}
	for _, name := range led {
		m.say(part, name)
	}
	for _, err := range u.Errors {
		if first(err.Name) {
			early.Errors = append(early.Errors, err)
		}
	}
	for _, un := range u.Unresolved {
		if !slices.ContainsFunc(un.Names, func(n string) bool { return !first(n) }) {
			early.Unresolved = append(early.Unresolved, un)
		}
	}
	return early, len(early.Changed)+len(early.Removed)+len(early.Errors)+len(early.Unresolved) > 0
}

// say notes that to has spoken of name.
func (m *move) say(part xds.Part, name string) {
	m.spoken[name] = struct{}{}
	m.compare(part, name)
}

// compare notes whether the two streams say the same of name.
func (m *move) compare(part xds.Part, name string) {
	has, next := part.Held(name), m.held.Load().Part(m.wild).Held(name)
	_, spoken := m.spoken[name]
	if spoken && has.Same(next) || has == nil && (next == nil || !spoken) {
		delete(m.apart, name)
	} else {
		m.apart[name] = struct{}{}
	}
}

// lapsed takes notice of what to holds no more though nobody said that it is gone
// (P62, P63): it has yet to answer that again.
func (m *move) lapsed(v *view) {
	part := v.part(m.wild)
	for name := range m.held.Load().Part(m.wild).Lapsed {
		delete(m.spoken, name)
		m.compare(part, name)
	}
}

// behind takes out of what the old stream says the names of which the new one
// spoke first, until it says the same: what it says of them before is older.
func (m *move) behind(v *view, u *xds.Update) {
	if len(m.ahead) == 0 {
		return
	}
	part := v.part(m.wild)
	older := func(name string, r *xds.Resource) bool {
		if _, ahead := m.ahead[name]; !ahead {
			return false
		}
		if u.Guess || !r.Same(part.Held(name)) {
			return true
		}
		delete(m.ahead, name)
		return false
	}
	u.Changed = slices.DeleteFunc(slices.Clone(u.Changed), func(r *xds.Resource) bool { return older(r.Name, r) })
	u.Removed = slices.DeleteFunc(slices.Clone(u.Removed), func(n string) bool { return older(n, nil) })
}

// follow takes notice of what was applied to what is held.
func (m *move) follow(v *view, u *xds.Update) {
	part := v.part(m.wild)
	for _, r := range u.Changed {
		m.compare(part, r.Name)
	}
	for _, name := range u.Removed {
		m.compare(part, name)
	}
}

// forget lets go of names that nobody wants any more; left are those that stay.
func (m *move) forget(left *xds.NameSet, names []string) {
	m.next.ForgetBut(left, names...)
	m.publish(left)
	for _, name := range names {
		delete(m.spoken, name)
		delete(m.apart, name)
		delete(m.ahead, name)
	}
}

// arrived reports whether the old stream is not needed any more: the two say the
// same. If the old one is away, what the new one says is the newer; and if the
// new one says nothing of a name for as long as a name may stay unanswered
// (P57), that is all that it has to say.
func (m *move) arrived(v *view, now time.Time, patience time.Duration) bool {
	if s := m.to.status.Load(); s != m.under {
		m.under, m.since = s, now
	}
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

// due is when the time alone ends the move; zero if it does not.
func (m *move) due(patience time.Duration) time.Time {
	if m.under == nil || !m.under.Connected {
		return time.Time{}
	}
	return m.since.Add(patience)
}

// moved ends the move of a part that has arrived, from where it comes from there
// on. It reports whether there is a new snapshot.
func (v *view) moved(now time.Time, patience time.Duration, stateGen uint64) bool {
	m := v.move.Load()
	if m == nil {
		return false
	}
	if m.next.Expire(now) > 0 {
		m.publish(v.names)
		m.lapsed(v)
	}
	if !m.arrived(v, now, patience) {
		return false
	}
	// What the old stream brought and the new one did not, and is not to be kept,
	// goes with it (P63).
	was := v.part(m.wild)
	v.builder.Apply(xds.Update{Type: v.typ.URL, Wildcard: m.wild, Ended: true})
	if m.origin != "" {
		is := m.held.Load().Part(m.wild)
		u := xds.Update{Type: v.typ.URL, Origin: m.origin, Version: m.version, Wildcard: m.wild, Received: now}
		for name := range m.spoken {
			if r := is.Held(name); r != nil {
				u.Changed = append(u.Changed, r)
			} else if was.Answers(name) && !is.Answers(name) {
				u.Removed = append(u.Removed, name)
			}
		}
		// Also of names of which it said nothing else (P39).
		who := everything
		if !m.wild {
			who = &xds.Subscription{Names: v.names}
		}
		m.held.Load().Errors(who, func(err *xds.ResourceError) bool {
			u.Errors = append(u.Errors, err)
			return true
		})
		v.builder.Apply(u)
	}
	if m.wild {
		v.wildAt = m.to
	} else {
		v.namesAt = m.to
	}
	v.move.Store(nil)
	return v.held.Load() != nil && v.snapshot(stateGen)
}
