package snapshot

import (
	"slices"

	"xdsrelay/internal/xds"
)

// pushes are what responses of the origin had under new versions, changed or not (P15). Snapshots
// share the array of the list.
type pushes struct {
	list    []push // oldest first
	names   int    // in the list
	dropped uint64 // the newest generation with a push that is no longer in the list
}

// push has the resources of one part that a response had under a new version. It lists them or the
// others, whichever are fewer: a SotW response usually has all.
type push struct {
	gen    uint64
	scope  Scope    // the part
	except bool     // names are the resources of the part that the response did not have
	names  []string // sorted
}

func (p *push) has(name string) bool {
	_, listed := slices.BinarySearch(p.names, name)
	return listed != p.except
}

// maxPushes limits the list of pushes. Its names are limited like those of the log. It always has the
// newest push.
const maxPushes = 64

// notePushed records the names that an applied update had under a new version.
func (b *Builder) notePushed(names []string, scope Scope) {
	in := make([]string, 0, len(names))
	for _, name := range names {
		e, _ := b.entries.Get(name)
		if r := *e.resource(scope); r.HasBody() {
			in = append(in, r.Name) // not name, which keeps memory of its own
		}
	}
	if len(in) == 0 {
		return
	}
	slices.Sort(in)
	p := push{gen: b.gen + 1, scope: scope, except: 2*len(in) > b.bodies[scope], names: in}
	if p.except {
		p.names = nil
		b.entries.Scan(func(name string, e entry) bool {
			if _, had := slices.BinarySearch(in, name); !had && (*e.resource(scope)).HasBody() {
				p.names = append(p.names, name)
			}
			return len(in)+len(p.names) < b.bodies[scope]
		})
	}
	b.dirty = true
	all := &b.pushes
	all.list, all.names = append(all.list, p), all.names+len(p.names)
	drop := 0
	for ; drop < len(all.list)-1 && (all.names > max(minLogNames, b.entries.Len()) || len(all.list)-drop > maxPushes); drop++ {
		all.names -= len(all.list[drop].names)
		all.dropped = all.list[drop].gen
	}
	if drop > 0 {
		all.list = slices.Clone(all.list[drop:])
	}
}

// PushedSince reports whether the origin sent anything under a new version after generation gen of
// the lineage, changed or not, and not in answer to a new stream (P15).
func (s *Snapshot) PushedSince(lineage, gen uint64) bool {
	return s != nil && s.Lineage == lineage && len(s.pushes.list) > 0 && s.pushes.list[len(s.pushes.list)-1].gen > gen
}

// AnyPushedSince is PushedSince for those of the names whose resources a client with sub receives;
// nil: for all that it receives. If a push since gen is not known any more, each resource counts as
// pushed. The cost follows the number of names.
func (s *Snapshot) AnyPushedSince(lineage, gen uint64, sub *Subscription, names []string) (any bool) {
	if !s.PushedSince(lineage, gen) {
		return false
	}
	look := func(name string) bool {
		e := s.get(name)
		r := e.visible(sub, sub.Names.Has(name))
		scope := ScopeOf(r == e.wildcard && (sub.Wildcard || r != e.named)) // both parts may have the same one
		any = any || r != nil && (gen < s.pushes.dropped || slices.ContainsFunc(s.pushes.list, func(p push) bool {
			return p.gen > gen && p.scope == scope && p.has(name)
		}))
		return any
	}
	if names == nil {
		s.Covered(sub, func(r *xds.Resource) bool { return !look(r.Name) })
		return any
	}
	return slices.ContainsFunc(names, look)
}
