package xds

// Recall takes over what was written down as the last known good, before the
// origin has said anything of it: u is as it would come from the origin that said
// it once. It is no word of an origin: the snapshots are Stale until each part of
// it was spoken of. The caller sees to it that nothing of u was answered.
func (b *Builder) Recall(u Update) {
	b.Apply(u)
	if b.recalled == nil {
		b.recalled = make(map[part]struct{})
	}
	for _, r := range u.Changed {
		b.recalled[part{r.Name, u.Wildcard}] = struct{}{}
	}
	b.recalledAll = b.recalledAll || u.Wildcard
}

// Recant undoes Recall of us, as far as the origin has not spoken of it since; without
// any, all that was recalled.
func (b *Builder) Recant(us ...Update) {
	var parts []part
	all := len(us) == 0
	for p := range b.recalled {
		if all {
			parts = append(parts, p)
		}
	}
	for _, u := range us {
		all = all || u.Wildcard
		for _, r := range u.Changed {
			if p := (part{r.Name, u.Wildcard}); has(b.recalled, p) {
				parts = append(parts, p)
			}
		}
	}
	for _, p := range parts {
		e, _ := b.entries.Get(p.name)
		if p.wild {
			e.wild = nil
		} else {
			e.named = nil
		}
		b.set(p.name, e)
		delete(b.recalled, p)
	}
	if all && b.recalledAll {
		b.answered, b.dirty, b.recalledAll = false, true, false
	}
}

func has[K comparable](m map[K]struct{}, k K) bool {
	_, is := m[k]
	return is
}

// spoken notes that the origin has spoken of what u says, name by name: an
// incremental one may answer in several responses, and one in state of the world
// names what is there, and the rest is gone.
func (b *Builder) spoken(u *Update) {
	if !b.stale() {
		return
	}
	if u.Wildcard {
		b.recalledAll = false
	}
	for _, r := range u.Changed {
		delete(b.recalled, part{r.Name, u.Wildcard})
	}
	for _, n := range u.Removed {
		delete(b.recalled, part{n, u.Wildcard})
	}
	for _, e := range u.Errors {
		delete(b.recalled, part{e.Name, u.Wildcard})
	}
	for _, o := range u.Unresolved {
		for _, n := range o.Names {
			delete(b.recalled, part{name: n})
		}
	}
}

// stale reports whether anything held is what was written down once.
func (b *Builder) stale() bool { return b.recalledAll || len(b.recalled) > 0 }
