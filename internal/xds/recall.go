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

// Recant undoes Recall, of all that the origin has not spoken of since.
func (b *Builder) Recant() {
	for p := range b.recalled {
		e, _ := b.entries.Get(p.name)
		was := e
		if p.wild {
			e.wild = nil
		} else {
			e.named = nil
		}
		if e != was {
			b.set(p.name, e)
		}
	}
	if b.recalledAll {
		b.answered, b.dirty = false, true
	}
	b.recalled, b.recalledAll = nil, false
}

// spoken notes that the origin has spoken of what u says: of the wildcard as a
// whole, of a name alone. That the time ran out is no word (P57).
func (b *Builder) spoken(u *Update) {
	if !b.stale() || u.Guess {
		return
	}
	if u.Wildcard {
		b.recalledAll = false
		for p := range b.recalled {
			if p.wild {
				delete(b.recalled, p)
			}
		}
		return
	}
	for _, r := range u.Changed {
		delete(b.recalled, part{name: r.Name})
	}
	for _, n := range u.Removed {
		delete(b.recalled, part{name: n})
	}
	for _, e := range u.Errors {
		delete(b.recalled, part{name: e.Name})
	}
	for _, o := range u.Unresolved {
		for _, n := range o.Names {
			delete(b.recalled, part{name: n})
		}
	}
}

// stale reports whether anything held is what was written down once.
func (b *Builder) stale() bool { return b.recalledAll || len(b.recalled) > 0 }
