package check

import "fmt"

// keptResource is a resource that a relay's store must have unless an origin removes it. A client
// held it at the last rest, and subscribed to it from then on until the relay was killed.
type keptResource struct {
	part
	by *stream
	of *progress
}

// kept has all resources of that kind in a relay's store.
type kept struct {
	process *process // the process that stored it
	n       int      // the rest after which it was stored
	all     []*keptResource
	ending  int // the event before the kill of the process; 0: it was not killed
}

// firstSubscription is a stream's first subscription. The relay may already have refused the stream
// when later ones come.
type firstSubscription struct {
	typ   string
	wild  bool
	names map[string]bool
}

func (w firstSubscription) wants(p part) bool {
	return w.typ == p.typ && (w.wild && p.wild || w.names[p.name])
}

// keeps returns the content of a store that has everything that was held at the last rest.
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
				out.all = append(out.all, &keptResource{part{r, pr.wild}, s, pr})
			}
		}
	}
	return out
}

// prune keeps what a client subscribes to when the process is killed, over a connection without a
// fault. Other resources may be forgotten.
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
		case s.got[one.resource] != one.of: // it was unsubscribed by name, even if briefly
		case one.wild && !s.sub(one.typ).wild:
		default:
			k.all = append(k.all, one)
		}
	}
}

// serves returns a kept resource that the stream's first requests subscribe to, nil if none is
// certain.
func (k *kept) serves(c *checker, s *stream, p *process) *keptResource {
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

// always reports whether every origin had a resource from an event until now.
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
