package check

import "fmt"

// keeping is what a relay's store has of which nothing but an origin's removal takes
// it away: a client held it at the last rest, and asked for it from then on until
// the relay was killed.
type keeping struct {
	part
	by *stream
	of *progress
}

// kept is all of that of a relay's store.
type kept struct {
	process *process // that has stored it
	n       int      // the rest after which that was
	all     []*keeping
	ending  int // the event in which the process was about to be killed; 0: it was not
}

// wish is what a stream asks for first. What it asks for later may come when it is
// refused already.
type wish struct {
	typ   string
	wild  bool
	names map[string]bool
}

func (w wish) wants(p part) bool {
	return w.typ == p.typ && (w.wild && p.wild || w.names[p.name])
}

// keeps is what a store has when it has all that was held at the last rest.
func (c *checker) keeps(e *Event) *kept {
	p := c.process(e.Relay, e.Process)
	if p == nil {
		return nil
	}
	out := &kept{process: p, n: c.restN}
	for _, h := range c.atRest {
		s := c.stream(h)
		if s == nil || s.process != p {
			continue
		}
		for name := range h.Resources {
			r := resource{s.key, h.Type, name}
			if pr := s.got[r]; pr != nil {
				out.all = append(out.all, &keeping{part{r, pr.wild}, s, pr})
			}
		}
	}
	return out
}

// prune leaves what somebody asks for as the process is killed, over a connection
// that no fault has touched. What nobody asks for any more may be forgotten.
func (k *kept) prune(c *checker, e *Event) {
	if k == nil || e.Process != k.process.id {
		return
	}
	k.ending = e.N
	all := k.all
	k.all = nil
	for _, one := range all {
		s := one.by
		conn := c.conns[streamID{s.client, s.id}]
		t := c.first[conn]
		switch {
		case s.closedN > 0, conn == "", t > 0 && t <= e.N:
		case s.got[one.resource] != one.of: // it was given up by name, be it for a moment
		case one.wild && !s.sub(one.typ).wild:
		default:
			k.all = append(k.all, one)
		}
	}
}

// serves is what is kept of that which a stream to the process asks for first; nil:
// there is nothing of it, as far as can be told.
func (k *kept) serves(c *checker, s *stream, p *process) *keeping {
	// A later process may have stored a generation with fewer names since.
	if k == nil || k.ending == 0 || p.id != k.process.id+1 || s.openedN < p.began {
		return nil
	}
	for _, one := range k.all {
		if one.key == s.key && s.first.wants(one.part) && c.always(one.resource, k.n) {
			return one
		}
	}
	return nil
}

// always reports whether no origin was without a resource from an event until now.
func (c *checker) always(r resource, from int) bool {
	for _, l := range c.of(r) {
		for _, st := range l[l.at(from):] {
			if st.content == "" {
				return false
			}
		}
	}
	return true
}

func (s *stream) String() string { return fmt.Sprintf("client %s, stream %d,", s.client, s.id) }
