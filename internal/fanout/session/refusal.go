package session

import (
	"slices"

	"xdsrelay/internal/xds"
)

// refusal is what a refused response held: nothing of it is sent again by
// itself, and all of it when any of it changes (P15).
type refusal struct {
	names []string
	// handled are those of names, sorted, that came for a handle: whether they are
	// still asked for cannot be told from the name, once they are gone.
	handled []string
	said    *Manifest // the response; nil where it is not known
	gen     uint64    // that the response was of, the oldest of several
}

// led reports whether one of the names came for a handle.
func (r *refusal) led(name string) bool {
	_, led := slices.BinarySearch(r.handled, name)
	return led
}

// removal reports whether what was refused of a name is that it went, as far as it is
// known.
func (r *refusal) removal(name string) bool {
	if r.said == nil {
		return true
	}
	v, _ := r.said.says(name)
	return v == xds.Version{}
}

// asks reports whether the client, which was sent at, still asks for one of the names
// of a refusal, be it by a handle. Of what is gone that can be told no more: there is
// nothing to take of it, unless just that was refused.
func (s *Session) asks(r *refusal, name string, at *xds.Snapshot) bool {
	if s.sub.effective.Covers(name) {
		return true
	}
	has := s.delivered.sentBeforeACK[name]
	if has == nil {
		has = at.Held(name)
	}
	if has != nil {
		return has.AskedBy(s.sub.effective.Names)
	}
	return r.led(name) && r.removal(name) && !s.sub.effective.Empty()
}

// asked reports whether the client still asks for any of a refusal.
func (s *Session) asked(r *refusal) bool {
	at := s.delivered.snapshot
	return slices.ContainsFunc(r.names, func(n string) bool { return s.asks(r, n, at) })
}

// turned reports whether a name, of which the client may have refused that it leads
// nowhere, leads somewhere since.
func (s *Session) turned(name string, cur *xds.Snapshot) bool {
	if s.refusals.list == nil || s.form.Variant == xds.SotW {
		return false
	}
	_, was := s.had(name)
	_, is := s.look(name, cur)
	return is == xds.Elsewhere && was != xds.Elsewhere
}

// refuse remembers what the refused response held, as far as it is still asked
// for. Of a full-state SotW response that is everything, and so is the next one:
// no names are needed. Where a response that went out since, without waiting
// (P19), told of a change of any of it, that change is behind us: the next one
// has to speak of the rest, or nothing ever would.
func (s *Session) refuse(f *pendingACK, since []pendingACK) {
	if s.full() || len(f.frame.names) == 0 {
		return
	}
	ref := refusal{names: f.frame.names, said: f.frame, gen: f.of.Gen}
	if !f.sub.Wildcard {
		handled := func(n string) bool { return !f.sub.Names.Has(n) }
		if slices.ContainsFunc(ref.names, handled) {
			ref.handled = slices.DeleteFunc(slices.Clone(ref.names), func(n string) bool { return !handled(n) })
		}
	}
	names := s.stillAsked(&ref)
	if len(names) == 0 {
		return
	}
	changed := false
	var unsaid []string
	for _, n := range names {
		refused, _ := f.frame.says(n)
		spoke := false
		for _, later := range since {
			if now, says := later.frame.says(n); says {
				spoke, changed = true, changed || now != refused
			}
		}
		if !spoke {
			unsaid = append(unsaid, n)
		}
	}
	if changed {
		for _, n := range unsaid {
			s.mark(n, repeated)
		}
		return
	}
	ref.names = names
	s.refusals.list = append(s.refusals.list, ref)
	if len(s.refusals.list) > maxPendingACKs {
		// The two oldest become one: a change of either then sends both.
		a, b := &s.refusals.list[0], &s.refusals.list[1]
		both := refusal{names: slices.Concat(a.names, b.names), handled: slices.Concat(a.handled, b.handled), gen: min(a.gen, b.gen)}
		sortUnique(&both.names)
		sortUnique(&both.handled)
		both.names = s.stillAsked(&both)
		both.names = both.names[:min(len(both.names), maxRefused)]
		both.handled = both.handled[:min(len(both.handled), maxRefused)]
		s.refusals.list = slices.Delete(s.refusals.list, 0, 1)
		s.refusals.list[0] = both
	}
}

// overtake: a response that speaks otherwise of anything that was refused, and not
// of all of it, since a name is answered by itself (P19, P22–P24), has the rest
// follow: nothing may change of it any more (P15).
func (s *Session) overtake(p *Plan, frame *Manifest) {
	s.refusals.list = slices.DeleteFunc(s.refusals.list, func(r refusal) bool {
		if r.said == nil || slices.ContainsFunc(p.again, func(a refusal) bool { return a.said == r.said }) {
			return false
		}
		otherwise := slices.ContainsFunc(r.names, func(n string) bool {
			now, says := frame.says(n)
			was, said := r.said.says(n)
			return says && said && now != was
		})
		if !otherwise {
			return false
		}
		for _, n := range r.names {
			if _, says := frame.says(n); !says && s.asks(&r, n, s.delivered.snapshot) {
				s.mark(n, repeated)
			}
		}
		return true
	})
	if len(s.refusals.list) == 0 {
		s.refusals.list = nil
	}
}

// forgive lets go of refusals of which nothing is left that a state-of-the-world client
// could be told: it is gone (P31).
func (s *Session) forgive(to *xds.Snapshot) {
	if s.form.Variant != xds.SotW || len(s.refusals.list) == 0 {
		return
	}
	s.refusals.list = slices.DeleteFunc(s.refusals.list, func(r refusal) bool {
		return !slices.ContainsFunc(r.names, func(n string) bool {
			_, is := to.Look(s.sub.effective, n)
			return is == xds.Present && s.asks(&r, n, to)
		})
	})
	if len(s.refusals.list) == 0 {
		s.refusals.list, s.refusals.last = nil, false
	}
}

// maxRefused bounds the names of refusals that were merged. What a wildcard
// covers is the origin's to decide, and over time has no other bound.
const maxRefused = 1 << 16

// stillAsked are the names that the client still asks for, or may: those of the refusal
// itself if it is all of them.
func (s *Session) stillAsked(r *refusal) []string {
	at := s.delivered.snapshot
	gone := func(n string) bool { return !s.asks(r, n, at) && (s.sub.effective.Empty() || !r.led(n)) }
	if !slices.ContainsFunc(r.names, gone) {
		return r.names
	}
	return slices.DeleteFunc(slices.Clone(r.names), gone)
}

// cover lets go of the refusals of which the response speaks again.
func (s *Session) cover(p *Plan, frame *Manifest) {
	s.refusals.list = slices.DeleteFunc(s.refusals.list, func(r refusal) bool {
		return s.covered(r, frame, p.To)
	})
	if len(s.refusals.list) == 0 {
		s.refusals.list = nil
	}
}

// covered reports whether a response speaks again of all that a refused one
// held, but for what is not asked for any more, and what SotW has no way to
// speak of.
func (s *Session) covered(r refusal, frame *Manifest, to *xds.Snapshot) bool {
	return !slices.ContainsFunc(r.names, func(n string) bool {
		if _, again := frame.says(n); again || !s.asks(&r, n, to) {
			return false
		}
		_, is := to.Look(s.sub.effective, n)
		return s.form.Variant == xds.Delta || is == xds.Present
	})
}

// Declined is the newest generation that the client refused something of, and those of the
// names in it, sorted, that it still asks for: at most limit of them before equal ones are
// taken out.
func (s *Session) Declined(limit int) (gen uint64, names []string) {
	for _, r := range s.refusals.list {
		gen = max(gen, r.gen)
		for _, name := range r.names {
			if s.asks(&r, name, s.delivered.snapshot) && len(names) < limit {
				names = append(names, name)
			}
		}
	}
	sortUnique(&names)
	return gen, names
}
