package session

import (
	"slices"

	"xdsrelay/internal/xds"
)

// restart has everything answered anew, as to a first request, but for what the
// client has and is gone: the wildcard was subscribed. was is what it asked for
// before.
func (s *Session) restart(was *xds.Subscription) {
	if !s.delivered.resendAll {
		s.delivered.sub = was
	}
	s.forced.initialResponsePending, s.delivered.resendAll = true, true
}

// relent takes a restart back: the wildcard was given up before it was answered.
// It returns what the client asked for when it was last sent something.
func (s *Session) relent() *xds.Subscription {
	was := s.sentBy()
	s.forced.initialResponsePending, s.delivered.resendAll, s.delivered.sub = s.delivered.snapshot == nil, false, nil
	return was
}

// sentBy is the subscription by which sent was sent.
func (s *Session) sentBy() *xds.Subscription {
	if s.delivered.sub != nil {
		return s.delivered.sub
	}
	return s.sub.effective
}

// narrow follows the end of the wildcard; was is what the client was sent by.
// It was sent the wildcard's copy of what it goes on to ask for. Where the copy
// that came for the names is another one, or there is none, they are told (P50). A
// set that it refused would have been followed by a set that holds everything; now
// it is remembered what it held (P15).
func (s *Session) narrow(was *xds.Subscription) {
	at := s.delivered.snapshot
	if at == nil || !was.Wildcard {
		return
	}
	var held []string
	names := with(at, slices.Collect(s.sub.effective.Names.All())) // it may ask by handles
	sortUnique(&names)
	for _, name := range names {
		had, then := at.Look(was, name)
		if then != xds.Present {
			continue
		}
		held = append(held, name)
		if has, is := at.Look(s.sub.effective, name); is != xds.Pending && (is != xds.Present || !s.form.Same(has, had)) {
			s.mark(name, repeated)
		}
	}
	if s.form.Variant == xds.SotW && s.refusals.last && !s.full() && len(held) > 0 {
		handled := slices.DeleteFunc(slices.Clone(held), s.sub.effective.Names.Has)
		s.refusals.list = append(s.refusals.list, refusal{names: held, handled: handled, gen: at.Gen})
	}
}
