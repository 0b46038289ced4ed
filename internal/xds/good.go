package xds

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Good is what of one type under one key at least one client acknowledged: the
// last known good.
//
// Of the wildcard it is the newest state that some client took as a whole, with the
// contents of single resources that were taken since: so it has no holes, and what
// the origin took away is in it until a client has taken that. Of names it is each
// resource by itself, and only the exceptions are noted: with a fleet in step it is
// two pointers. It keeps alive what it holds, and until Collect what that replaced.
//
// It is safe for concurrent use.
type Good struct {
	whole atomic.Pointer[Snapshot] // of the wildcard: taken as a whole
	last  atomic.Pointer[Receipt]  // the newest of seen

	mu   sync.Mutex
	seen map[*Receipt]struct{} // since Collect; maxReceipts at most
	// later are the wildcard's resources that were taken after whole, of names that
	// are in it, or in the seed while there is none.
	later   map[string]taken
	unasked time.Time // since when nobody has asked for the wildcard; zero: somebody does

	named map[string]taken // since Collect
	// base has what is good by name but for but: what no client took, with what one
	// had taken in its place; nil: nothing.
	base *Snapshot
	but  map[string]taken

	// seed is what was good in an earlier life, as far as nothing else is known: of
	// the wildcard, if it was all of an answer, and of names.
	seed     [2]map[string]*Resource
	seedWild bool
}

// taken is what a client took, and of which generation: it had nothing newer then.
type taken struct {
	*Resource
	gen uint64
}

// Receipt is the identity of a response: all who were sent it have the same.
type Receipt struct{ _ byte }

// maxReceipts bounds what Good remembers, so that a response is looked at once
// and not for each client that took it. One that was forgotten is looked at again.
const maxReceipts = 256

// carriedFor is for how long what nobody asks for stays good: what the wildcard had,
// and the names of an earlier life. Clients come back one by one.
const carriedFor = 10 * time.Minute

// Took is a resource that a client took.
type Took struct {
	Resource *Resource
	Wild     bool // it came for the wildcard
}

// alike reports whether the two are the same but for the origin's version.
func (r *Resource) alike(o *Resource) bool { return o != nil && r.content == o.content }

// Knows reports whether the response was noted. It costs a load where it is the
// one that was noted last.
func (g *Good) Knows(of *Receipt) bool {
	if g.last.Load() == of {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, seen := g.seen[of]
	return seen
}

// Whole is the newest state of the wildcard that a client took as a whole; nil: none
// in this life.
func (g *Good) Whole() *Snapshot { return g.whole.Load() }

// KnowsAll reports whether it was noted that a client has all that the wildcard
// brought in s, or in something newer.
func (g *Good) KnowsAll(s *Snapshot) bool {
	all := g.whole.Load()
	return all == s || all != nil && all.Gen >= s.Gen
}

// TakeAll notes that a client has all that the wildcard brought in s, which the
// origin has answered. It reports whether something else is good by it.
func (g *Good) TakeAll(s *Snapshot) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.KnowsAll(s) {
		return false
	}
	g.whole.Store(s)
	wild := s.Part(true)
	for name, t := range g.later {
		if t.gen <= s.Gen || wild.Held(name) == nil {
			delete(g.later, name)
		}
	}
	g.seed[1], g.seedWild = nil, false
	return true
}

// Take notes that a client acknowledged a response out of the generation, which
// has these. removed: some were taken away in it as well. It reports whether
// something else is good by it.
func (g *Good) Take(of *Receipt, gen uint64, took []Took, removed bool) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) >= maxReceipts {
		clear(g.seen)
	}
	if g.seen == nil {
		g.seen = make(map[*Receipt]struct{})
	}
	g.seen[of] = struct{}{}
	g.last.Store(of)
	news = removed
	for _, t := range took {
		r := t.Resource
		if !r.Storable() {
			continue
		}
		have, into, known := g.goodNamed(r.Name), &g.named, true
		if t.Wild {
			have, known = g.goodWild(r.Name)
			into = &g.later
		}
		if !known || have.gen >= gen || r.alike(have.Resource) {
			continue
		}
		if *into == nil {
			*into = make(map[string]taken)
		}
		(*into)[r.Name], news = taken{r, gen}, true
	}
	return news
}

// goodWild is what of the wildcard is good under name, and of which generation;
// false: nothing of that name is. Under the lock.
func (g *Good) goodWild(name string) (taken, bool) {
	if t, is := g.later[name]; is {
		return t, true
	}
	if s := g.whole.Load(); s != nil {
		r := s.Part(true).Held(name)
		return taken{r, s.Gen}, r != nil
	}
	r := g.seed[1][name]
	return taken{Resource: r}, r != nil
}

// goodNamed is what is good by name, a nil resource for nothing, and of which
// generation. Under the lock.
func (g *Good) goodNamed(name string) taken {
	if t, is := g.named[name]; is {
		return t
	}
	if t, is := g.but[name]; is {
		return t
	}
	if g.base != nil {
		if r := g.base.Part(false).Held(name); r.Storable() {
			return taken{r, g.base.Gen}
		}
		return taken{gen: g.base.Gen}
	}
	return taken{Resource: g.seed[0][name]}
}

// Seed says what was good in an earlier life of the key; wildcard: of the wildcard
// it is all of an answer.
func (g *Good) Seed(was []Took, wildcard bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seed = [2]map[string]*Resource{make(map[string]*Resource), nil}
	wildcard = wildcard && g.whole.Load() == nil
	if wildcard {
		g.seed[1] = make(map[string]*Resource)
	}
	g.seedWild = wildcard
	for _, t := range was {
		if !t.Wild || wildcard {
			g.seed[btoi(t.Wild)][t.Resource.Name] = t.Resource
		}
	}
}

// Carried reports whether some of what Collect returned last is of an earlier life,
// and was not confirmed in this one.
func (g *Good) Carried() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seedWild || len(g.seed[0]) > 0
}

// Collect returns what is good, in order of names, the wildcard's before the name's
// own; and whether those of the wildcard are all of an answer to it: if not, there
// are none of them. By name it is the newest that some client took of what is in
// held, which may be nil: what is not there any more the origin has taken away, or
// nobody asks for it. But what was good in an earlier life, and nobody has asked for
// yet, stays if carry says so.
//
// An answer to the wildcard with anything that is not to be stored is not good: what
// is left of it would say that the rest is gone.
//
// It is called by one goroutine at a time. Who takes something meanwhile does not
// wait for it, however much is held.
func (g *Good) Collect(held *Snapshot, carry bool, now time.Time) (took []Took, wildcard bool) {
	g.mu.Lock()
	g.forget(held, now)
	was := Good{base: g.base, but: maps.Clone(g.but), named: maps.Clone(g.named), later: maps.Clone(g.later), seed: g.seed, seedWild: g.seedWild}
	whole := g.whole.Load()
	g.mu.Unlock()

	took, wildcard = was.wildcard(whole)
	but := make(map[string]taken)
	if held != nil {
		for r := range held.Part(false).Resources {
			if !r.Storable() {
				continue
			}
			have := was.goodNamed(r.Name)
			if have.Resource == nil { // it may be of an earlier life, from before it was asked for
				have.Resource = was.seed[0][r.Name]
			}
			if r.alike(have.Resource) {
				have.Resource = r
			} else {
				but[r.Name] = have
			}
			if have.Resource != nil {
				took = append(took, Took{Resource: have.Resource})
			}
		}
	}
	seed := make(map[string]*Resource)
	if carry {
		for name, r := range was.seed[0] {
			if !held.Part(false).Known(name) { // else the origin has spoken of it since
				seed[name] = r
				took = append(took, Took{Resource: r})
			}
		}
	}
	slices.SortFunc(took, func(a, b Took) int {
		if c := strings.Compare(a.Resource.Name, b.Resource.Name); c != 0 {
			return c
		}
		return btoi(b.Wild) - btoi(a.Wild)
	})

	g.mu.Lock()
	defer g.mu.Unlock()
	for name, t := range was.named {
		if g.named[name] == t {
			delete(g.named, name)
		}
	}
	g.base, g.but, g.seed[0], g.seen = held, but, seed, nil
	g.last.Store(nil)
	return took, wildcard
}

// forget lets go of what the wildcard had once nobody has asked for it for so long.
// Under the lock.
func (g *Good) forget(held *Snapshot, now time.Time) {
	switch {
	case held.answered() || g.whole.Load() == nil:
		g.unasked = time.Time{}
	case g.unasked.IsZero():
		g.unasked = now
	case now.Sub(g.unasked) > carriedFor:
		g.whole.Store(nil)
		g.later, g.unasked = nil, time.Time{}
	}
}

// wildcard is what of the wildcard is good, if it is all of an answer.
func (g *Good) wildcard(whole *Snapshot) (took []Took, all bool) {
	add := func(name string, r *Resource) bool {
		if t, is := g.later[name]; is {
			r = t.Resource
		}
		took = append(took, Took{r, true})
		return r.Storable()
	}
	switch {
	case whole != nil && whole.Part(true).AnyLapsed():
		return nil, false // clients may still have it
	case whole != nil:
		for r := range whole.Part(true).Resources {
			if !add(r.Name, r) {
				return nil, false
			}
		}
		return took, true
	case g.seedWild:
		for name, r := range g.seed[1] {
			add(name, r)
		}
		return took, true
	}
	return nil, false
}
