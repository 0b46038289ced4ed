package upstream

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// batch is names of a type that were asked for at once.
type batch struct {
	typ   xds.TypeURL
	names *xds.NameSet
	wild  bool          // and not names: the wildcard, of which something was recalled
	until time.Time     // once written
	left  time.Duration // until then
	anew  bool          // it has had its whole time again on a stream that the relay opened anew
}

// asking records that a request adds names. Those that the stream before waited
// for wait for the rest of their time.
func (t *talk) asking(typ xds.TypeURL, names *xds.NameSet) {
	t.carried = slices.DeleteFunc(t.carried, func(b batch) bool {
		if b.typ != typ {
			return false
		}
		if b.names = common(b.names, names); b.names.Len() > 0 {
			names = names.Remove(slices.Collect(b.names.All())...)
			t.unwritten = append(t.unwritten, b)
		}
		return true // whatever is left was let go
	})
	if names.Len() > 0 {
		t.unwritten = append(t.unwritten, batch{typ: typ, names: names, left: t.absentAfter})
	}
}

// askingAll records that a request asks for the wildcard, if anything is held of the
// type that is waited for: what an answer leaves out stays, but for full-state types
// in state of the world, and nobody would ever hear of it.
func (t *talk) askingAll(typ xds.TypeURL) {
	if s := t.held(typ); s != nil && s.Stale {
		t.unwritten = append(t.unwritten, batch{typ: typ, wild: true, left: t.absentAfter})
	}
}

// dropping records that a request takes names away: their clocks stop.
func (t *talk) dropping(typ xds.TypeURL, names []string) {
	if len(names) == 0 {
		return
	}
	for i := range t.waiting {
		if b := &t.waiting[i]; b.typ == typ {
			b.names = b.names.Remove(names...)
		}
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(b batch) bool { return !b.wild && b.names.Len() == 0 })
}

func (t *talk) written(now time.Time) {
	for _, b := range t.unwritten {
		b.until = now.Add(b.left)
		t.waiting = append(t.waiting, b)
	}
	t.unwritten = nil
	slices.SortStableFunc(t.waiting, func(a, b batch) int { return a.until.Compare(b.until) })
}

func (t *talk) deadline() time.Time {
	if len(t.waiting) == 0 {
		return time.Time{}
	}
	return t.waiting[0].until
}

func (t *talk) unanswered(now time.Time) bool {
	was := slices.Clone(t.waiting)
	any := len(t.expired(now)) > 0
	t.waiting = was // nothing is decided yet
	return any
}

// expired: what stays of a wildcard that ended is held, and no silence takes it
// away. But if a response that holds all there is, of a full-state type in SotW,
// came since the name was asked for and did not have it, that was no silence.
func (t *talk) expired(now time.Time) []xds.Update {
	var out []xds.Update
	for len(t.waiting) > 0 && !t.waiting[0].until.After(now) {
		b := t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		tt := t.byURL[b.typ]
		if tt == nil {
			continue
		}
		out = append(out, t.unspoken(b, tt, now)...)
		a := asked{names: common(b.names, tt.asked.names)}
		part := a.part(t.held(b.typ))
		said := t.nonces && tt.typ.FullState && !tt.taken.Before(b.until.Add(-t.absentAfter))
		var names, gone []string
		for name := range a.names.All() {
			switch lends, stays := part.Lent(name); {
			case !part.Owed(name) && lends:
				// Answered, and no more of it comes: what is lent beside that is gone.
				names = append(names, name)
			case !part.Owed(name):
			case !stays:
				names = append(names, name)
			case said:
				gone = append(gone, name)
			}
		}
		if len(names) > 0 {
			out = append(out, xds.Update{Type: b.typ, Origin: t.origin, Removed: names, Guess: true, Received: now})
		}
		if len(gone) > 0 {
			out = append(out, xds.Update{Type: b.typ, Origin: t.origin, Removed: gone, Received: now})
		}
	}
	return out
}

// unspoken is what of a batch was recalled, and the origin says nothing of. An origin
// that says nothing at all on a stream may be none: then it is waited for on.
func (t *talk) unspoken(b batch, tt *typeTalk, now time.Time) []xds.Update {
	snap := t.held(b.typ)
	a := asked{wildcard: b.wild && tt.asked.wildcard, names: common(b.names, tt.asked.names)}
	if snap == nil || !snap.Stale || a.empty() {
		return nil
	}
	if !t.spoke {
		var names []string
		for name := range a.names.All() {
			if a.part(snap).Answers(name) {
				names = append(names, name)
			}
		}
		if b.names = xds.NewNameSet(names...); b.wild || b.names.Len() > 0 {
			b.until = now.Add(t.absentAfter)
			t.waiting = append(t.waiting, b) // no other is due later
		}
		return nil
	}
	u := xds.Update{Type: b.typ, Origin: t.origin, Wildcard: a.wildcard, Unspoken: []string{}, Received: now}
	for r := range a.covers(snap) {
		u.Unspoken = append(u.Unspoken, r.Name)
	}
	return []xds.Update{u}
}

func (t *talk) carry(now time.Time) []batch {
	for i := range t.waiting {
		b := &t.waiting[i]
		b.left = max(0, b.until.Sub(now))
		if !b.anew { // to who is slow all that he has done is lost
			b.left, b.anew = t.absentAfter, true
		}
	}
	var out []batch
	for _, b := range slices.Concat(t.waiting, t.unwritten, t.carried) {
		tt := t.byURL[b.typ]
		if tt == nil {
			continue
		}
		b.names = common(b.names, tt.want.names).Remove(tt.lapsed...)
		if b.names.Len() > 0 {
			out = append(out, b)
		}
	}
	return out
}

// common are the names of both.
func common(a, b *xds.NameSet) *xds.NameSet {
	var gone []string
	for name := range a.All() {
		if !b.Has(name) {
			gone = append(gone, name)
		}
	}
	return a.Remove(gone...)
}
