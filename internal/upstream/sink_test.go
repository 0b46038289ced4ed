package upstream

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// testSink is a group without members: it applies updates to real builders.
type testSink struct {
	mu       sync.Mutex
	builders map[xds.TypeURL]*xds.Builder
	held     map[xds.TypeURL]*xds.Snapshot
	interest *xds.Interest
	updates  []xds.Update
	statuses []Status
	fail     error
	gate     chan struct{} // updates wait until it is closed; nil: they don't
	changed  chan struct{} // closed and replaced at every change
}

func newTestSink() *testSink {
	return &testSink{
		builders: make(map[xds.TypeURL]*xds.Builder),
		held:     make(map[xds.TypeURL]*xds.Snapshot),
		changed:  make(chan struct{}),
	}
}

func (s *testSink) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *testSink) Held(typ xds.TypeURL) *xds.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[typ]
}

func (s *testSink) Update(ctx context.Context, u xds.Update) (changed bool, err error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if ctx.Err() != nil { // a group may still take it, and may not
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return false, s.fail
	}
	was := s.held[u.Type]
	s.builder(u.Type).Apply(u)
	s.builder(u.Type).Settle(s.interest.Of(u.Type).Names)
	s.publish(u.Type)
	s.updates = append(s.updates, u)
	s.tell()
	return s.held[u.Type] != was, nil
}

func (s *testSink) Status(st Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, st)
	s.tell()
}

func (s *testSink) builder(typ xds.TypeURL) *xds.Builder {
	if s.builders[typ] == nil {
		s.builders[typ] = xds.NewBuilder(xds.TypeOf(typ))
	}
	return s.builders[typ]
}

func (s *testSink) publish(typ xds.TypeURL) {
	s.held[typ], _ = s.builder(typ).Snapshot(s.held[typ], 1)
}

// want forgets what is not wanted any more, as a group does.
func (s *testSink) want(types ...xds.TypeInterest) *xds.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := &xds.Interest{Types: types}
	if s.interest != nil {
		for _, was := range s.interest.Types {
			is := i.Of(was.Type)
			_, gone := diff(was.Names, is.Names)
			b := s.builder(was.Type)
			if was.Wildcard && !is.Wildcard {
				b.EndWildcard()
			}
			b.ForgetBut(is.Names, gone...)
			s.publish(was.Type)
		}
	}
	s.interest = i
	return i
}

// until waits until ok holds of what the sink has.
func (s *testSink) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		is, changed := ok(), s.changed
		s.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("waited for %s in vain; updates %+v, statuses %+v", what, s.updates, s.statuses)
		}
	}
}

// names returns the names held of typ; the lock is the caller's.
func (s *testSink) names(typ xds.TypeURL) []string {
	var out []string
	for r := range s.held[typ].Resources {
		out = append(out, r.Name)
	}
	return out
}

// presence of a name asked for by name.
func (s *testSink) presence(typ xds.TypeURL, name string) xds.Presence {
	_, is := s.held[typ].Look(&xds.Subscription{Names: xds.NewNameSet(name)}, name)
	return is
}

// untilNames waits until exactly these names of typ are held.
func (s *testSink) untilNames(t *testing.T, typ xds.TypeURL, names ...string) {
	t.Helper()
	s.until(t, "names", func() bool { return slices.Equal(s.names(typ), names) })
}

func (s *testSink) lastStatus() Status {
	if len(s.statuses) == 0 {
		return Status{}
	}
	return s.statuses[len(s.statuses)-1]
}

// Interests.
func named(typ xds.TypeURL, names ...string) xds.TypeInterest {
	return xds.TypeInterest{Type: typ, Names: xds.NewNameSet(names...)}
}

func all(typ xds.TypeURL) xds.TypeInterest { return xds.TypeInterest{Type: typ, Wildcard: true} }
