package xds

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Good is what of one type under one key at least one client acknowledged: the
// last known good. What clients have it notes by snapshots that they took as a
// whole, and of the rest only the exceptions: with a fleet in step it is a pointer.
// Until Collect it keeps alive what the newest that was taken has replaced.
//
// It is safe for concurrent use.
type Good struct {
	whole atomic.Pointer[Snapshot] // the newest whose wildcard part a client has
	last  atomic.Pointer[Receipt]  // the newest of seen

	mu    sync.Mutex
	seen  map[*Receipt]struct{} // since Collect; maxReceipts at most
	taken map[part]taken        // since Collect
	wild  bool                  // a client had all of an answer to the wildcard
	// base has, of the wildcard and of names, what is good but for but: what no
	// client took, with what one had taken in its place; nil: nothing.
	base [2]*Snapshot
	but  map[part]taken
	// seed is what was good in an earlier life, as far as nothing else is known.
	seed     map[part]*Resource
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
	return g.takeAll(s)
}

// takeAll is TakeAll under the lock.
func (g *Good) takeAll(s *Snapshot) (news bool) {
	for p, t := range g.taken {
		if p.wild && t.gen <= s.Gen {
			delete(g.taken, p)
		}
	}
	news = !g.wild
	g.wild = true
	if had := g.base[1]; had == nil || s.Gen >= had.Gen {
		for p := range g.but {
			if p.wild {
				delete(g.but, p)
				news = true
			}
		}
		news = news || had != s
		g.base[1] = s
		return news
	}
	for p, t := range g.but { // Collect has seen something newer since
		if !p.wild || t.gen >= s.Gen {
			continue
		}
		t = taken{gen: s.Gen}
		if r := s.Part(true).Held(p.name); r.Storable() {
			t.Resource = r
		}
		g.but[p], news = t, true
	}
	return news
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
		p := part{t.Resource.Name, t.Wild}
		if have := g.good(p); t.Resource.Storable() && have.gen < gen && !t.Resource.alike(have.Resource) {
			if g.taken == nil {
				g.taken = make(map[part]taken)
			}
			g.taken[p], news = taken{t.Resource, gen}, true
		}
	}
	return news
}

// good is what is good of a part, a nil resource for nothing, and of which
// generation. Under the lock.
func (g *Good) good(p part) taken {
	if t, is := g.taken[p]; is {
		return t
	}
	if t, is := g.but[p]; is {
		return t
	}
	if base := g.base[btoi(p.wild)]; base != nil {
		if r := base.Part(p.wild).Held(p.name); r.Storable() {
			return taken{r, base.Gen}
		}
		return taken{gen: base.Gen}
	}
	return taken{Resource: g.seed[p]}
}

// Seed says what was good in an earlier life of the key.
func (g *Good) Seed(was []Took, wildcard bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seed, g.seedWild = make(map[part]*Resource, len(was)), wildcard
	for _, t := range was {
		g.seed[part{t.Resource.Name, t.Wild}] = t.Resource
	}
}

// Collect returns what is good of held, which may be nil: of each resource the newest
// that some client took, in order of names, the wildcard's before the name's own; and
// whether those of the wildcard are all of an answer to it. What is not in held is
// not good any more: the origin has taken it away, or nobody asks for it. But what
// was good in an earlier life, and nobody has asked for yet, stays if carry says so.
//
// It is called by one goroutine at a time. Who takes something meanwhile does not
// wait for it, however much is held.
func (g *Good) Collect(held *Snapshot, carry bool) (took []Took, wildcard bool) {
	g.mu.Lock()
	was := Good{base: g.base, but: maps.Clone(g.but), taken: maps.Clone(g.taken), seed: g.seed}
	whole := g.whole.Load()
	g.mu.Unlock()
	but := make(map[part]taken)
	note := func(p part, r *Resource) {
		if !r.Storable() {
			return
		}
		have := was.good(p)
		if have.Resource == nil { // it may be of an earlier life, from before it was asked for
			have.Resource = was.seed[p]
		}
		if r.alike(have.Resource) {
			have.Resource = r
		} else {
			but[p] = have
		}
		if have.Resource != nil {
			took = append(took, Took{have.Resource, p.wild})
		}
	}
	if held != nil {
		held.entries.Scan(func(name string, e entry) bool {
			note(part{name, true}, held.Part(true).of(e))
			note(part{name, false}, held.Part(false).of(e))
			return true
		})
	}
	seed, took := was.carried(held, carry, took)

	g.mu.Lock()
	defer g.mu.Unlock()
	if held.answered() {
		g.wild = g.wild || g.seedWild
		wildcard = g.wild
	} else {
		g.wild, wildcard = false, carry && g.seedWild
	}
	for p, t := range was.taken {
		if g.taken[p] == t {
			delete(g.taken, p)
		}
	}
	g.base, g.but, g.seed, g.seedWild = [2]*Snapshot{held, held}, but, seed, g.seedWild && carry
	if now := g.whole.Load(); now != whole { // meanwhile
		g.takeAll(now)
	}
	g.seen = nil
	g.last.Store(nil)
	return took, wildcard
}

// carried adds what of the earlier life stays, and returns it.
func (g *Good) carried(held *Snapshot, carry bool, took []Took) (map[part]*Resource, []Took) {
	if !carry || len(g.seed) == 0 {
		return nil, took
	}
	stays := make(map[part]*Resource)
	for p, r := range g.seed {
		// What the origin has spoken of since is not of an earlier life any more.
		if p.wild && !held.answered() || !p.wild && !held.Part(false).Known(p.name) {
			stays[p] = r
			took = append(took, Took{r, p.wild})
		}
	}
	if len(stays) > 0 {
		slices.SortFunc(took, func(a, b Took) int {
			if c := strings.Compare(a.Resource.Name, b.Resource.Name); c != 0 {
				return c
			}
			return btoi(b.Wild) - btoi(a.Wild)
		})
	}
	return stays, took
}
