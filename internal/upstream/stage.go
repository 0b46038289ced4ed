package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// stage keeps what an origin says while it is tried out (P56): nobody sees it
// before the origin has answered every type. Then it is handed to the group
// (handover.go); from then on updates go to the group directly.
//
// Each type has a fork of what was held as the origin was first asked for it.
// What the origin says is applied to that as a group would, and held against
// that: another origin's word that comes meanwhile is nothing to it. What is equal
// to what was held shares its memory with it.
type stage struct {
	news    chan<- struct{} // one slot: something was said, or the origin reached
	variant xds.Variant

	mu       sync.Mutex
	state    staging
	live     chan struct{} // closed when updates go to the group
	interest *xds.Interest // that the origin is asked for
	types    map[xds.TypeURL]*staged
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

// staged is what is said of one type.
type staged struct {
	builder *xds.Builder
	held    *xds.Snapshot
	parts   map[bool]*said // that of the wildcard, and that of names
}

// said is how much of a part the origin has said.
type said struct {
	answered    bool
	whole       *asked // it is all there is of this: what is left out is gone (P65); nil: it is not
	version     string
	unversioned bool
	received    time.Time
	names       map[string]struct{} // that it gave or took away
}

// answer is what an update says beside its names.
type answer struct {
	// whole, if not nil, is what was asked, of which the update is all there is (P65).
	whole *asked
	// beats: heartbeats alone, which answer nothing (P62).
	beats bool
}

func newStage(v xds.Variant, news chan<- struct{}) *stage {
	return &stage{news: news, variant: v, live: make(chan struct{}), types: make(map[xds.TypeURL]*staged)}
}

// held is what the origin's word on a type is to be held against, given what the
// group holds.
func (s *stage) held(typ xds.TypeURL, now *xds.Snapshot) *xds.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != keeping {
		return now
	}
	return s.of(typ, now).held
}

// of is a type's; under the lock.
func (s *stage) of(typ xds.TypeURL, now *xds.Snapshot) *staged {
	t := s.types[typ]
	if t == nil {
		t = &staged{builder: now.Fork(xds.TypeOf(typ)), parts: make(map[bool]*said)}
		t.publish()
		s.types[typ] = t
	}
	return t
}

func (t *staged) publish() { t.held, _ = t.builder.Snapshot(t.held, 0) }

// part is a part's; under the lock.
func (t *staged) part(wild bool) *said {
	p := t.parts[wild]
	if p == nil {
		p = &said{names: make(map[string]struct{})}
		t.parts[wild] = p
	}
	return p
}

// follow takes over the interest that the origin is asked for, and what lapsed: it
// is forgotten, as the group forgets it.
func (s *stage) follow(i *xds.Interest, lapsed lapses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != keeping {
		return
	}
	s.interest = i
	for typ, l := range lapsed {
		t := s.types[typ]
		switch is := i.Of(typ); {
		case t == nil:
		case empty(is):
			delete(s.types, typ)
		default:
			t.forget(is.Names, slices.Collect(maps.Keys(l.names)))
		}
	}
}

// forget lets go of names, be it that they are asked for again.
func (t *staged) forget(wanted *xds.NameSet, names []string) {
	gone := slices.Clone(names)
	for _, n := range names {
		gone = append(gone, t.held.Linked(n)...)
	}
	t.builder.ForgetBut(wanted.Remove(names...), names...)
	t.publish()
	p, part := t.part(false), t.held.Part(false)
	for _, n := range gone {
		if part.Held(n) == nil {
			delete(p.names, n)
		}
	}
}

// tell says that there is news.
func (s *stage) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *stage) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == direct
}

// put keeps an update. It reports false if it is to go to the group; while the
// stage is being handed over it waits for that.
func (s *stage) put(ctx context.Context, u *xds.Update, a answer) (kept bool, err error) {
	s.mu.Lock()
	state := s.state
	switch {
	case state == keeping:
		s.of(u.Type, nil).keep(u, a, s.interest.Of(u.Type).Names)
	case state == direct && len(s.strays) > 0:
		s.find(u)
	}
	s.mu.Unlock()
	switch state {
	case keeping:
		s.tell()
		return true, nil
	case handing:
		select {
		case <-s.live:
			return s.put(ctx, u, a)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// keep is put under the lock.
func (t *staged) keep(u *xds.Update, a answer, wanted *xds.NameSet) {
	p := t.part(u.Wildcard)
	if u.Ended { // it is as if it had not been said
		for _, n := range t.builder.Uncacheable(u.Wildcard) {
			delete(p.names, n)
		}
	}
	t.builder.Apply(*u)
	t.builder.Settle(wanted)
	t.publish()
	switch {
	case u.Ended:
		return
	case a.whole != nil:
		p.whole = a.whole
	}
	p.answered = p.answered || !a.beats
	p.received = u.Received
	if u.Versioned() {
		p.version, p.unversioned = u.Version, u.Unversioned
	}
	for _, r := range u.Changed {
		p.names[r.Name] = struct{}{}
	}
	for _, n := range u.Removed {
		p.names[n] = struct{}{}
	}
}

// ready reports whether the origin has answered every type that is wanted: none
// of what another origin gave is at stake any more. A type of which nothing is
// held is not waited for: origins leave unanswered what they do not have. But
// something has to be answered: an origin that is only silent serves nobody.
func (s *stage) ready(i *xds.Interest, held func(xds.TypeURL) *xds.Snapshot) bool {
	if i == nil {
		return false
	}
	any, answered := false, s.answered()
	for _, t := range i.Types {
		if empty(t) {
			continue
		}
		switch {
		case answered[partOf{t.Type, t.Wildcard}]:
			any = true
		case anyOf(held(t.Type).Part(t.Wildcard)):
			return false
		}
	}
	return any
}

// unanswered are the types that are wanted and not answered.
func (s *stage) unanswered(i *xds.Interest) (types []string) {
	if i == nil {
		return nil
	}
	answered := s.answered()
	for _, t := range i.Types {
		if !empty(t) && !answered[partOf{t.Type, t.Wildcard}] {
			types = append(types, xds.TypeOf(t.Type).Label())
		}
	}
	return types
}

// answered are the parts that were.
func (s *stage) answered() map[partOf]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[partOf]bool)
	for typ, t := range s.types {
		for wild, p := range t.parts {
			if p.answered {
				out[partOf{typ, wild}] = true
			}
		}
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
