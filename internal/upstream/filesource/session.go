package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// fileSession serves one key from a directory. It needs no goroutine of its
// own: what the files say is there at once, and complete.
type fileSession struct {
	origin *fileOrigin
	stream *line
}

func (s *fileSession) close() {}

// rest waits for d, or until the directory can be read.
func (s *fileSession) rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		now, changed := s.origin.load()
		if now != nil && now.failed == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *fileSession) serve(ctx context.Context) error {
	now, changed := s.origin.load()
	for now == nil {
		select {
		case <-changed:
			now, changed = s.origin.load()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if now.failed != nil {
		return fmt.Errorf("read directory: %w", now.failed)
	}
	s.stream.opened()
	told := make(map[xds.TypeURL]*told)
	interest, lapsed := s.stream.take()
	for {
		if err := s.tell(ctx, told, now, interest, lapsed); err != nil {
			return err
		}
		lapsed = nil
		s.stream.answered()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-s.stream.changed():
			sleep(ctx, mergeFor)
			if interest, lapsed = s.stream.take(); !wantsAny(interest) {
				return errReopen // there is no stream where nothing is wanted
			}
		}
		now, changed = s.origin.load()
	}
}

func wantsAny(i *xds.Interest) bool {
	return i != nil && slices.ContainsFunc(i.Types, func(t xds.TypeInterest) bool { return !empty(t) })
}

// tell hands over what the group does not know yet, in the order in which one
// type refers to the other (P35).
func (s *fileSession) tell(ctx context.Context, of map[xds.TypeURL]*told, now *contents, interest *xds.Interest, lapsed lapses) error {
	var types []xds.TypeInterest
	if interest != nil {
		types = slices.Clone(interest.Types)
	}
	slices.SortStableFunc(types, func(a, b xds.TypeInterest) int {
		return int(xds.TypeOf(a.Type).Order) - int(xds.TypeOf(b.Type).Order)
	})
	maps.DeleteFunc(of, func(typ xds.TypeURL, _ *told) bool { return empty(interest.Of(typ)) })
	for _, t := range types {
		if empty(t) {
			continue
		}
		if of[t.Type] == nil {
			of[t.Type] = &told{at: nothing}
		}
		at := time.Now()
		u, any := of[t.Type].update(t, lapsed[t.Type], now.of(t.Type), s.stream.held(t.Type), at)
		if !any {
			continue
		}
		trace := s.stream.trace(at)
		trace.Read(tracing.Response{Type: u.Type, Version: u.Version, Resources: len(u.Changed), Removed: len(u.Removed)}, nil)
		trace.Handed(len(u.Changed), len(u.Removed))
		changed, err := s.stream.apply(tracing.With(ctx, trace), u)
		if err != nil {
			trace.Fail("over", err)
			return err
		}
		result := telemetry.Unchanged
		if changed {
			result = telemetry.Applied
		} else {
			trace.End("unchanged")
		}
		s.stream.counters(u.Type).Updates[result].Inc()
	}
	return nil
}

// told is what a group was told of a type on this attempt.
type told struct {
	wildcard bool
	names    *xds.NameSet
	at       *fileType
}

// update returns what brings a group that was told t to what the files say now,
// if there is anything, and remembers it as told. A name to which no resource
// goes is absent, for the origin has said all it has to say (P25). lapsed is what the
// group has forgotten since, held what it holds, maybe from another origin.
func (t *told) update(want xds.TypeInterest, lapsed *lapse, now *fileType, held *xds.Snapshot, at time.Time) (u xds.Update, any bool) {
	if lapsed == nil {
		lapsed = new(lapse)
	}
	changed := differences(t.at, now)
	first := want.Wildcard && (!t.wildcard || lapsed.wildcard)
	if first {
		for name := range now.resources {
			changed[name] = struct{}{}
		}
		for r := range held.Part(true).Resources {
			changed[r.Name] = struct{}{}
		}
		for name := range held.Part(true).Lapsed { // others may still hold it
			changed[name] = struct{}{}
		}
	}
	asked := func(r *xds.Resource) bool { return r != nil && (want.Wildcard || r.AskedBy(want.Names)) }
	if !want.Wildcard {
		maps.DeleteFunc(changed, func(name string, _ struct{}) bool {
			return !want.Names.Has(name) && !asked(t.at.resources[name]) && !asked(now.resources[name])
		})
		fresh := func(name string) {
			for _, names := range [][]string{{name}, now.goes[name], held.Linked(name)} {
				for _, n := range names {
					changed[n] = struct{}{}
				}
			}
		}
		for name, added := range t.names.Diff(want.Names) {
			if added {
				fresh(name)
			}
		}
		for name := range lapsed.names {
			if want.Names.Has(name) {
				fresh(name)
			}
		}
	}
	renamed := t.at.version != now.version
	t.wildcard, t.names, t.at = want.Wildcard, want.Names, now
	if !first && !renamed && len(changed) == 0 {
		return u, false
	}
	u = xds.Update{Type: want.Type, Version: now.version, Unversioned: now.version == "", Wildcard: want.Wildcard, Received: at}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		switch r := now.resources[name]; {
		case asked(r):
			u.Changed = append(u.Changed, r.Start(at))
		case want.Wildcard, want.Names.Has(name) && len(now.goes[name]) == 0, held.Part(false).Held(name) != nil:
			u.Removed = append(u.Removed, name)
		}
	}
	return u, first || renamed || len(u.Changed)+len(u.Removed) > 0
}

// differences are the names of which b says something else than a.
func differences(a, b *fileType) map[string]struct{} {
	out := make(map[string]struct{})
	if a == b {
		return out
	}
	for name, r := range a.resources {
		if b.resources[name] != r {
			out[name] = struct{}{}
		}
	}
	for name := range b.resources {
		if a.resources[name] == nil {
			out[name] = struct{}{}
		}
	}
	return out
}
