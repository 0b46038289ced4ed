package upstreamtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Sink is a group without members. It applies updates to real builders.
type Sink struct {
	Gate chan struct{} // if set, Update waits until it is closed

	Mu        sync.Mutex // protects the fields below
	Snapshots map[xds.TypeURL]*snapshot.Snapshot
	Interest  *snapshot.Interest
	Updates   []snapshot.Update // all that were applied
	Fail      error             // what Update returns, if set
	builders  map[xds.TypeURL]*snapshot.Builder
	wildcards uint64        // subscriptions to wildcards that have ended
	changed   chan struct{} // closed and replaced at every change
}

// NewSink returns a Sink that holds nothing.
func NewSink() *Sink {
	return &Sink{
		builders:  make(map[xds.TypeURL]*snapshot.Builder),
		Snapshots: make(map[xds.TypeURL]*snapshot.Snapshot),
		changed:   make(chan struct{}),
	}
}

// Notify wakes Until. The caller holds Mu.
func (s *Sink) Notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Newest is the newest snapshot of typ.
func (s *Sink) Newest(typ xds.TypeURL) *snapshot.Snapshot {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Snapshots[typ]
}

// Update applies u.
func (s *Sink) Update(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	if s.Gate != nil {
		select {
		case <-s.Gate:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if ctx.Err() != nil { // a group may or may not still apply it
		return false, ctx.Err()
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Fail != nil {
		return false, s.Fail
	}
	was, in := s.Snapshots[u.Type], s.Interest.Of(u.Type)
	if in.Wildcard && u.Wildcard && u.WildcardID != in.WildcardID { // so does a group
		return false, nil
	}
	if s.Interest != nil && !u.Wildcard && !in.Wildcard { // a group drops what is no longer subscribed
		u.Changed = slices.DeleteFunc(slices.Clone(u.Changed), func(r *xds.Resource) bool { return !r.RequestedBy(in.Names) })
		u.Removed = slices.DeleteFunc(slices.Clone(u.Removed), func(n string) bool { return !was.Part(snapshot.ByName).Requested(n, in.Names) })
	}
	s.Builder(u.Type).Apply(u)
	s.Builder(u.Type).ResolveAliases(s.Interest.Of(u.Type).Names)
	s.Publish(u.Type)
	s.Updates = append(s.Updates, u)
	s.Notify()
	return s.Snapshots[u.Type] != was, nil
}

// Builder is the builder of typ. The caller holds Mu or is the only user.
func (s *Sink) Builder(typ xds.TypeURL) *snapshot.Builder {
	if s.builders[typ] == nil {
		s.builders[typ] = snapshot.NewBuilder(xds.TypeOf(typ))
	}
	return s.builders[typ]
}

// Publish makes a snapshot from the builder of typ. Locking as for Builder.
func (s *Sink) Publish(typ xds.TypeURL) {
	s.Snapshots[typ], _ = s.Builder(typ).Snapshot(s.Snapshots[typ], 1)
}

// Want sets the interest and drops what is no longer wanted, as a group does.
func (s *Sink) Want(types ...snapshot.TypeInterest) *snapshot.Interest {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	i := &snapshot.Interest{Types: slices.Clone(types)}
	if s.Interest != nil {
		for _, was := range s.Interest.Types {
			is := i.Of(was.Type)
			var gone []string
			for name, added := range was.Names.Diff(is.Names) {
				if !added {
					gone = append(gone, name)
				}
			}
			b := s.Builder(was.Type)
			if was.Wildcard && !is.Wildcard {
				b.EndWildcard()
				s.wildcards++
			}
			b.Forget(is.Names, gone...)
			s.Publish(was.Type)
		}
	}
	for n := range i.Types {
		is := &i.Types[n]
		switch was := s.Interest.Of(is.Type); {
		case is.Wildcard && was.Wildcard:
			is.WildcardID = was.WildcardID
		case is.Wildcard:
			is.WildcardID = s.wildcards
		}
	}
	s.Interest = i
	return i
}

// Until waits until ok returns true. It calls ok with Mu held.
func (s *Sink) Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		s.Mu.Lock()
		is, changed := ok(), s.changed
		s.Mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			s.Mu.Lock()
			defer s.Mu.Unlock()
			t.Fatalf("waited for %s in vain; updates %+v", what, s.Updates)
		}
	}
}

// Names returns the held names of typ. The caller holds Mu or is the only user.
func (s *Sink) Names(typ xds.TypeURL) []string {
	var out []string
	for r := range s.Snapshots[typ].Resources {
		out = append(out, r.Name)
	}
	return out
}

// Presence returns the presence of a name that is subscribed by name. Locking as for Names.
func (s *Sink) Presence(typ xds.TypeURL, name string) snapshot.Presence {
	_, is := s.Snapshots[typ].Look(&snapshot.Subscription{Names: xds.NewNameSet(name)}, name)
	return is
}

// UntilNames waits until exactly these names of typ are held.
func (s *Sink) UntilNames(t *testing.T, typ xds.TypeURL, names ...string) {
	t.Helper()
	s.Until(t, "names", func() bool { return slices.Equal(s.Names(typ), names) })
}
