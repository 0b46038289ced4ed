package orchestrator

import (
	"slices"

	"xdsrelay/internal/xds"
)

// Clients ask for resources by their names, by aliases (P26) and by globs
// (P28), and the origin is asked for the same: what answers a handle is held
// under its own name, for as long as anything is asked for by which it goes
// (P65).

// askedFor reports whether the type is asked for a resource, by whatever it
// goes.
func (v *View) askedFor(r *xds.Resource) bool { return r.AskedBy(v.names) }

// answers reports whether name is asked for, or the resource that is held under
// it.
func (v *View) answers(name string) bool { return v.held.Load().Part(false).Asked(name, v.names) }

// askedBy are the names by which the origin is asked for what is held under name,
// and whether a member wants any of them.
func (v *View) askedBy(name string) (by []string, wanted bool) {
	for _, n := range append(slices.Clone(v.held.Load().Part(false).Held(name).Handles()), name) {
		if v.names.Has(n) {
			by = append(by, n)
		}
		wanted = wanted || v.index.wants(n)
	}
	return by, wanted
}

// admitHandles takes out of u what could not be resolved and is not asked for any
// more (P18).
func (v *View) admitHandles(u *xds.Update) {
	var left []xds.Unresolved
	for _, w := range u.Unresolved {
		names := slices.DeleteFunc(slices.Clone(w.Names), func(n string) bool { return !v.names.Has(n) })
		if len(names) > 0 {
			left = append(left, xds.Unresolved{Resource: w.Resource, Names: names})
		}
	}
	u.Unresolved = left
}

// newsOfHandles reports whether u speaks of a handle of which nothing was known.
func (v *View) newsOfHandles(u *xds.Update, was *xds.Snapshot) bool {
	part := was.Part(false)
	news := func(n string) bool { return v.names.Has(n) && part.Owed(n) }
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return slices.ContainsFunc(r.Handles(), news) }) ||
		slices.ContainsFunc(u.Unresolved, func(w xds.Unresolved) bool { return slices.ContainsFunc(w.Names, news) })
}

// askAgain has the origin asked once more for names that it could not resolve
// (P18). It reports whether there is a new snapshot.
func (v *View) askAgain(names []string, stateGen uint64) bool {
	again := v.builder.Again(names...)
	if len(again) == 0 {
		return false
	}
	v.again = append(v.again, again...)
	return v.snapshot(stateGen)
}

// byHandle calls wake once for each subscription that has a handle of what is
// held under the name of d in either snapshot, and sees it otherwise now.
func (x *index) byHandle(d *difference, round uint64, wake func(*wanter)) {
	look := func(handle string) bool {
		for _, c := range x.names[handle].list {
			for _, w := range c.subs.list {
				if w.woken != round && d.sees(w.sub) {
					wake(w)
				}
			}
		}
		return true
	}
	d.prev.HandlesAt(d.name, look)
	d.next.HandlesAt(d.name, look)
}

// handled notes whether what is held under the name goes by more than that, so
// that what a client sees of it depends on all that it asks for.
func (d *difference) handled() {
	if !d.prev.AnyHandles() && !d.next.AnyHandles() {
		return
	}
	any := func(string) bool { d.byHandles = true; return false }
	d.prev.HandlesAt(d.name, any)
	d.next.HandlesAt(d.name, any)
}

// sees reports whether a client with sub sees something else of the name.
func (d *difference) sees(sub *xds.Subscription) bool {
	was, wasThere := d.prev.Look(sub, d.name)
	is, isThere := d.next.Look(sub, d.name)
	if wasThere == xds.Elsewhere && isThere == xds.Elsewhere { // so is the handle; but what is called so may have gone
		_, wasThere = d.prev.Own(sub, d.name)
		_, isThere = d.next.Own(sub, d.name)
	}
	return wasThere != isThere || isThere == xds.Present && !is.Same(was) ||
		isThere == xds.Unresolvable && is.Word() != was.Word() ||
		d.prev.Error(sub, d.name) != d.next.Error(sub, d.name)
}
