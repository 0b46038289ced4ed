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
		wanted = wanted || v.index.HasName(n)
	}
	return by, wanted
}

// dropUnaskedHandles takes out of u what could not be resolved and is not asked for any
// more (P18).
func (v *View) dropUnaskedHandles(u *xds.Update) {
	var left []xds.Unresolved
	for _, w := range u.Unresolved {
		names := slices.DeleteFunc(slices.Clone(w.Names), func(n string) bool { return !v.names.Has(n) })
		if len(names) > 0 {
			left = append(left, xds.Unresolved{Resource: w.Resource, Names: names})
		}
	}
	u.Unresolved = left
}

// answersUnknownHandle reports whether u speaks of a handle of which nothing was known.
func (v *View) answersUnknownHandle(u *xds.Update, was *xds.Snapshot) bool {
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
