package session

import (
	"slices"

	"xdsrelay/internal/xds"
)

// restart has everything answered anew, as to a first request, but for what the
// client has and is gone: the wildcard was subscribed. was is what it asked for
// before.
func (s *Session) restart(was *xds.Subscription) {
	if !s.anew {
		s.by = was
	}
	s.initialResponsePending, s.anew = true, true
}

// relent takes a restart back: the wildcard was given up before it was answered.
// It returns what the client asked for when it was last sent something.
func (s *Session) relent() *xds.Subscription {
	was := s.sentBy()
	s.initialResponsePending, s.anew, s.by = s.sent == nil, false, nil
	return was
}

// sentBy is the subscription by which sent was sent.
func (s *Session) sentBy() *xds.Subscription {
	if s.by != nil {
		return s.by
	}
	return s.sub
}

// narrow follows the end of the wildcard; was is what the client was sent by.
// It was sent the wildcard's copy of what it goes on to ask for. Where the copy
// that came for the names is another one, or there is none, they are told (P50). A
// set that it refused would have been followed by a set that holds everything; now
// it is remembered what it held (P15).
func (s *Session) narrow(was *xds.Subscription) {
	at := s.sent
	if at == nil || !was.Wildcard {
		return
	}
	var held []string
	names := with(at, slices.Collect(s.sub.Names.All())) // it may ask by handles
	sortUnique(&names)
	for _, name := range names {
		had, then := at.Look(was, name)
		if then != xds.Present {
			continue
		}
		held = append(held, name)
		if has, is := at.Look(s.sub, name); is != xds.Pending && (is != xds.Present || !s.form.Same(has, had)) {
			s.mark(name, repeated)
		}
	}
	if s.variant == xds.SotW && s.refuses && !s.full() && len(held) > 0 {
		handled := slices.DeleteFunc(slices.Clone(held), s.sub.Names.Has)
		s.refused = append(s.refused, refusal{names: held, handled: handled, gen: at.Gen})
	}
}
