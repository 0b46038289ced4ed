package upstream

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// stage keeps what an origin says while it is tried out (P56): nobody sees it
// before the origin has answered every type. Then it is handed to the group as
// one update a part, which holds it against what it has, so that only
// differences go on; from then on updates go to the group directly.
//
// It holds the newest of each name. What is equal to what is held shares its
// memory with it.
type stage struct {
	news    chan<- struct{} // one slot: something was said
	variant xds.Variant

	mu    sync.Mutex
	state staging
	live  chan struct{} // closed when updates go to the group
	parts map[partOf]*staged
	// known is what was held of a type when the origin was first asked for it: in
	// incremental it was told of these names.
	known map[xds.TypeURL]*xds.Snapshot
	// strays are names of which something was held at the end that the origin had
	// not given, and has not since.
	strays map[partOf]map[string]struct{}
}

type staging uint8

const (
	keeping staging = iota
	handing         // over to the group
	direct
)

// staged is what is said of one part of a type.
type staged struct {
	answered   bool   // else only its clock has run out (P57)
	whole      *asked // it is all there is of this: what is left out is gone (P65); nil: it is not
	version    string
	received   time.Time
	changed    map[string]*xds.Resource
	removed    map[string]struct{}
	errors     map[string]*xds.ResourceError
	unresolved map[string]xds.Unresolved
	guesses    map[string]struct{}
}

func newStage(v xds.Variant, news chan<- struct{}) *stage {
	return &stage{news: news, variant: v, live: make(chan struct{}), parts: make(map[partOf]*staged), known: make(map[xds.TypeURL]*xds.Snapshot)}
}

// asks notes what is held of a type as the origin is asked.
func (s *stage) asks(typ xds.TypeURL, snap *xds.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[typ]; !known && s.state == keeping {
		s.known[typ] = snap
	}
}

func (s *stage) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == direct
}

// put keeps an update. It reports false if it is to go to the group; while the
// stage is being handed over it waits for that.
func (s *stage) put(ctx context.Context, u *xds.Update, whole *asked) (kept bool, err error) {
	s.mu.Lock()
	state := s.state
	switch {
	case u.Ended:
	case state == keeping:
		s.keep(u, whole)
	case len(s.strays) > 0:
		s.find(u)
	}
	s.mu.Unlock()
	switch state {
	case keeping:
		select {
		case s.news <- struct{}{}:
		default:
		}
		return true, nil
	case handing:
		select {
		case <-s.live:
			return s.put(ctx, u, whole)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// find takes note that strays are given now, or gone. Under the lock.
func (s *stage) find(u *xds.Update) {
	at := partOf{u.Type, u.Wildcard}
	for _, r := range u.Changed {
		delete(s.strays[at], r.Name)
	}
	for _, n := range u.Removed {
		delete(s.strays[at], n)
	}
}

// remember has a line's memory know what is not its origin's (P55), once its
// attempt is over.
func (s *stage) remember(m memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, names := range s.strays {
		if r := m[at.typ]; r != nil && r.wildcard == at.wild {
			r.foreign = r.foreign.Add(slices.Collect(maps.Keys(names))...)
		}
	}
	s.strays = nil
}

// keep is put under the lock.
func (s *stage) keep(u *xds.Update, whole *asked) {
	at := partOf{u.Type, u.Wildcard}
	p := s.parts[at]
	if p == nil || whole != nil {
		var guesses map[string]struct{}
		if p != nil {
			guesses = p.guesses
		}
		p = &staged{
			changed: make(map[string]*xds.Resource), removed: make(map[string]struct{}), errors: make(map[string]*xds.ResourceError),
			unresolved: make(map[string]xds.Unresolved), guesses: guesses,
		}
		s.parts[at] = p
	}
	if u.Guess {
		if p.guesses == nil {
			p.guesses = make(map[string]struct{})
		}
		for _, n := range u.Removed {
			p.guesses[n] = struct{}{}
		}
		return
	}
	p.answered, p.whole, p.version, p.received = true, whole, u.Version, u.Received
	for _, r := range u.Changed {
		p.forget(r.Name)
		p.changed[r.Name] = r
	}
	for _, n := range u.Removed {
		p.forget(n)
		p.removed[n] = struct{}{}
	}
	for _, e := range u.Errors { // one that says that there is none comes with a removal
		p.errors[e.Name] = e
	}
	for _, w := range u.Unresolved {
		p.forget(w.Resource.Name)
		p.unresolved[w.Resource.Name] = w
	}
}

func (p *staged) forget(name string) {
	delete(p.changed, name)
	delete(p.removed, name)
	delete(p.errors, name)
	delete(p.unresolved, name)
}

// spoke reports whether anything is said of name.
func (p *staged) spoke(name string) bool {
	_, changed := p.changed[name]
	_, removed := p.removed[name]
	_, failed := p.errors[name]
	return changed || removed || failed
}

// ready reports whether the origin has answered every type that is wanted: none
// of what another origin gave is at stake any more. A type of which nothing is
// held is not waited for any longer than a name (P57): origins say nothing of
// what they do not have. late: that time is over. But something has to be
// answered: an origin that is only silent serves nobody.
func (s *stage) ready(i *xds.Interest, held func(xds.TypeURL) *xds.Snapshot, late bool) bool {
	if i == nil {
		return false
	}
	any := false
	for _, t := range i.Types {
		if empty(t) {
			continue
		}
		switch {
		case s.answered(t):
			any = true
		case !late || anyOf(held(t.Type).Part(t.Wildcard)):
			return false
		}
	}
	return any
}

func (s *stage) answered(t xds.TypeInterest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[partOf{t.Type, t.Wildcard}]
	return p != nil && p.answered
}

// spoken are the parts of which anything was said.
func (s *stage) spoken() map[partOf]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[partOf]bool)
	for at, p := range s.parts {
		out[at] = p.answered
	}
	return out
}

// anyOf reports whether anything is held that could be lost.
func anyOf(p xds.Part) bool {
	if p.Answered() {
		return true
	}
	for range p.Resources {
		return true
	}
	return false
}

// handOver hands over what is kept: answers, in the order in which one type refers
// to the other (P35), and then what was taken for absent. It is called once.
//
// It reports whether there are strays of a wildcard: the origin was not told of
// them when it was asked, and so could not say that they are gone.
func (s *stage) handOver(held func(xds.TypeURL) *xds.Snapshot, update func(xds.Update) error) (astray bool, err error) {
	s.mu.Lock()
	s.state = handing
	s.mu.Unlock() // from here on nothing is kept any more
	parts := slices.SortedFunc(maps.Keys(s.parts), func(a, b partOf) int {
		return cmp.Or(cmp.Compare(xds.TypeOf(a.typ).Order, xds.TypeOf(b.typ).Order), strings.Compare(string(a.typ), string(b.typ)))
	})
	strays := make(map[partOf]map[string]struct{})
	for _, at := range parts {
		p := s.parts[at]
		if !p.answered {
			continue
		}
		part := held(at.typ).Part(at.wild)
		if names := s.astray(at, p, part); len(names) > 0 {
			strays[at] = names
			astray = astray || at.wild
		}
		if err := update(p.update(at, part)); err != nil {
			return false, err
		}
	}
	for _, at := range parts {
		if u := s.parts[at].guess(at, held(at.typ).Part(at.wild)); len(u.Removed) > 0 {
			if err := update(u); err != nil {
				return false, err
			}
		}
	}
	s.mu.Lock()
	s.state, s.parts, s.known, s.strays = direct, nil, nil, strays
	s.mu.Unlock()
	close(s.live)
	return astray, nil
}

// update is what is said, for who holds this.
func (p *staged) update(at partOf, held xds.Part) xds.Update {
	u := xds.Update{Type: at.typ, Wildcard: at.wild, Version: p.version, Received: p.received}
	for _, n := range slices.Sorted(maps.Keys(p.changed)) {
		u.Changed = append(u.Changed, p.changed[n])
	}
	if p.whole != nil {
		for r := range held.Resources {
			if !p.spoke(r.Name) && (at.wild || r.AskedBy(p.whole.names)) {
				u.Removed = append(u.Removed, r.Name)
			}
		}
		for n := range held.Lapsed {
			if !p.spoke(n) && (at.wild || p.whole.names.Has(n)) {
				u.Removed = append(u.Removed, n)
			}
		}
	}
	u.Removed = slices.AppendSeq(u.Removed, maps.Keys(p.removed))
	slices.Sort(u.Removed)
	u.Removed = slices.Compact(u.Removed)
	for _, n := range slices.Sorted(maps.Keys(p.errors)) {
		u.Errors = append(u.Errors, p.errors[n])
	}
	for _, n := range slices.Sorted(maps.Keys(p.unresolved)) {
		u.Unresolved = append(u.Unresolved, p.unresolved[n])
	}
	return u
}

// astray are the strays of a part. Of names only incremental has versions, by
// which it matters whose they are.
func (s *stage) astray(at partOf, p *staged, held xds.Part) map[string]struct{} {
	if p.whole != nil || !at.wild && s.variant == xds.SotW {
		return nil
	}
	names := make(map[string]struct{})
	known := s.known[at.typ].Part(true)
	for r := range held.Resources {
		if !p.spoke(r.Name) && (!at.wild || known.Held(r.Name) == nil) {
			names[r.Name] = struct{}{}
		}
	}
	return names
}

// guess is what was taken for absent, and still is not known.
func (p *staged) guess(at partOf, held xds.Part) xds.Update {
	u := xds.Update{Type: at.typ, Guess: true, Received: p.received}
	for _, n := range slices.Sorted(maps.Keys(p.guesses)) {
		if held.Owed(n) {
			u.Removed = append(u.Removed, n)
		}
	}
	return u
}
