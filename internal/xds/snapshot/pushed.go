package snapshot

import (
	"iter"
	"slices"

	"xdsrelay/internal/xds"
)

// pushed are the resources of one part that a response of the origin had under a new version. It
// lists them or the others, whichever are fewer: a SotW response usually has all.
type pushed struct {
	wildcard bool     // the part
	except   bool     // names are the resources of the part that the response did not have
	names    []string // sorted
}

func (p *pushed) has(name string) bool {
	_, listed := slices.BinarySearch(p.names, name)
	return listed != p.except
}

// notePushed records the names that an applied update had under a new version.
func (b *Builder) notePushed(names []string, wildcard bool) {
	in := make([]string, 0, len(names))
	for _, name := range names {
		e, _ := b.entries.Get(name)
		if r := *e.resource(wildcard); r.HasBody() {
			in = append(in, r.Name) // not name, which keeps memory of its own
		}
	}
	if len(in) == 0 {
		return
	}
	slices.Sort(in)
	p := pushed{wildcard: wildcard, except: 2*len(in) > b.bodies[boolToInt(wildcard)], names: in}
	if p.except {
		p.names = nil
		b.entries.Scan(func(name string, e entry) bool {
			if _, had := slices.BinarySearch(in, name); !had && (*e.resource(wildcard)).HasBody() {
				p.names = append(p.names, name)
			}
			return len(in)+len(p.names) < b.bodies[boolToInt(wildcard)]
		})
	}
	b.pushed = append(b.pushed, p)
}

// pushedSince yields what the origin sent under new versions after generation gen of the lineage.
// What the log does not have any more is left out.
func (s *Snapshot) pushedSince(lineage, gen uint64) iter.Seq[*pushed] {
	return func(yield func(*pushed) bool) {
		if s == nil || s.Lineage != lineage {
			return
		}
		for i := len(s.log) - 1; i >= 0 && s.log[i].gen > gen; i-- {
			for j := range s.log[i].pushed {
				if !yield(&s.log[i].pushed[j]) {
					return
				}
			}
		}
	}
}

// PushedSince reports whether the origin sent anything under a new version after generation gen of
// the lineage, changed or not, and not in answer to a new stream (P15).
func (s *Snapshot) PushedSince(lineage, gen uint64) bool {
	for range s.pushedSince(lineage, gen) {
		return true
	}
	return false
}

// AnyPushedSince is PushedSince for those of the names whose resources a client with sub receives;
// nil: for all that it receives. The cost follows the number of names.
func (s *Snapshot) AnyPushedSince(lineage, gen uint64, sub *Subscription, names []string) (any bool) {
	if !s.PushedSince(lineage, gen) {
		return false
	}
	look := func(name string) bool {
		e := s.get(name)
		r := e.visible(sub, sub.Names.Has(name))
		wildcard := r == e.wildcard && (sub.Wildcard || r != e.named) // both parts may have the same one
		for p := range s.pushedSince(lineage, gen) {
			any = any || r != nil && p.wildcard == wildcard && p.has(name)
		}
		return any
	}
	if names == nil {
		s.Covered(sub, func(r *xds.Resource) bool { return !look(r.Name) })
		return any
	}
	return slices.ContainsFunc(names, look)
}
