package orchestrator

import (
	"slices"

	"xdsrelay/internal/xds"
)

// ahead are the names of a part on its way for which the new stream's word
// counts, since the old one had nothing to say of them when it came: nobody is to
// wait for what is on the old one's way. What that says of them from then on is
// kept aside, since it may be older, until the two say the same. Should the new
// stream be away for long, it is brought out again.
//
// Names that are asked for are among them, and those of the resources that go by
// these.
type ahead struct {
	names map[string]struct{}
	old   *xds.Builder // nil: it said nothing yet
	said  *xds.Snapshot
}

func (a *ahead) has(name string) bool { _, is := a.names[name]; return is }

func (a *ahead) any(names []string) bool { return slices.ContainsFunc(names, a.has) }

func (a *ahead) add(names ...string) {
	if a.names == nil {
		a.names = make(map[string]struct{})
	}
	for _, n := range names {
		a.names[n] = struct{}{}
	}
}

// aside keeps what the old stream says of names that are ahead, and returns the
// rest, which counts.
func (a *ahead) aside(v *view, u xds.Update) (rest xds.Update) {
	if len(a.names) == 0 {
		return u
	}
	mine, rest := split(v, u, a.any)
	if nothingIn(mine) {
		return rest
	}
	if a.old == nil {
		a.old = xds.NewBuilder(v.typ)
	}
	a.old.Apply(mine)
	a.settle(v)
	a.agree(v, mine)
	return rest
}

// ended lets go of what the old stream said and is not to be kept, since it has
// ended (P63).
func (a *ahead) ended(v *view, wild bool) {
	if a.old != nil && a.old.Apply(xds.Update{Type: v.typ.URL, Wildcard: wild, Ended: true}) {
		a.settle(v)
	}
}

func (a *ahead) settle(v *view) {
	a.old.Settle(v.names)
	a.said, _ = a.old.Snapshot(a.said, 0)
}

// agree takes out what the old stream says as the new one did.
func (a *ahead) agree(v *view, u xds.Update) {
	has, old := v.part(u.Wildcard), a.said.Part(u.Wildcard)
	for _, r := range u.Changed {
		if same(has, old, r.Name) {
			a.drop(goesBy(v, r))
		}
	}
	u.Changed = nil
	for _, n := range spoken(v, u) {
		if same(has, old, n) && has.Answers(n) == old.Answers(n) && has.Known(n) == old.Known(n) {
			a.drop([]string{n})
		}
	}
}

func (a *ahead) drop(names []string) {
	for _, n := range names {
		delete(a.names, n)
	}
}

// forget lets go of names, also of what nobody asks for any more.
func (a *ahead) forget(v *view, names, resources []string) {
	if a.old != nil {
		a.old.ForgetBut(v.names, names...)
		a.settle(v)
	}
	a.drop(names)
	a.drop(resources)
}

// end returns what the old stream said of those that is holds for, which is what
// counts from here on.
func (a *ahead) end(v *view, wild bool, is func(name string) bool) xds.Update {
	u := xds.Update{Type: v.typ.URL, Wildcard: wild}
	old := a.said.Part(wild)
	if a.said != nil {
		u.Origin, u.Version, u.Received = a.said.Origin, a.said.Given(), a.said.Received
		u.Unversioned = u.Version == ""
	}
	for n := range a.names {
		if !is(n) {
			continue
		}
		delete(a.names, n)
		r, err := old.Held(n), old.Error(n)
		switch {
		case r != nil:
			u.Changed = append(u.Changed, r)
		case err == nil && old.Known(n) && !old.Silent(n):
			u.Removed = append(u.Removed, n)
		}
		if err != nil {
			u.Errors = append(u.Errors, err)
		}
	}
	return u
}

// same reports whether two parts say the same of a name, what they hold under it
// and the origin's error.
func same(a, b xds.Part, name string) bool {
	return a.Held(name).Same(b.Held(name)) && a.Error(name).Same(b.Error(name))
}

// goesBy are the names by which a resource is asked for, and its own.
func goesBy(v *view, r *xds.Resource) []string {
	names := []string{r.Name}
	for _, h := range r.Handles() {
		if v.names.Has(h) {
			names = append(names, h)
		}
	}
	return names
}

// spoken are the names of which an update speaks, and those by which they are
// asked for.
func spoken(v *view, u xds.Update) (names []string) {
	for _, r := range u.Changed {
		names = append(names, goesBy(v, r)...)
	}
	names = append(names, u.Removed...)
	for _, e := range u.Errors {
		names = append(names, e.Name)
	}
	for _, w := range u.Unresolved {
		names = append(names, w.Names...)
	}
	return names
}

// split parts what an update says of names for which is holds from the rest. A
// resource is asked about with all names by which it is asked for.
func split(v *view, u xds.Update, is func(names []string) bool) (those, rest xds.Update) {
	those, rest = u, u
	those.Changed, those.Removed, those.Errors, those.Unresolved = nil, nil, nil, nil
	rest.Changed, rest.Removed, rest.Errors, rest.Unresolved = nil, nil, nil, nil
	for _, r := range u.Changed {
		to := &rest
		if is(goesBy(v, r)) {
			to = &those
		}
		to.Changed = append(to.Changed, r)
	}
	for _, n := range u.Removed {
		to := &rest
		if is([]string{n}) {
			to = &those
		}
		to.Removed = append(to.Removed, n)
	}
	for _, e := range u.Errors {
		to := &rest
		if is([]string{e.Name}) {
			to = &those
		}
		to.Errors = append(to.Errors, e)
	}
	for _, w := range u.Unresolved {
		in, out := xds.Unresolved{Resource: w.Resource}, xds.Unresolved{Resource: w.Resource}
		for _, n := range w.Names {
			if is([]string{n}) {
				in.Names = append(in.Names, n)
			} else {
				out.Names = append(out.Names, n)
			}
		}
		if len(in.Names) > 0 {
			those.Unresolved = append(those.Unresolved, in)
		}
		if len(out.Names) > 0 {
			rest.Unresolved = append(rest.Unresolved, out)
		}
	}
	return those, rest
}

// nothingIn reports whether an update speaks of no name.
func nothingIn(u xds.Update) bool {
	return len(u.Changed)+len(u.Removed)+len(u.Errors)+len(u.Unresolved) == 0
}
