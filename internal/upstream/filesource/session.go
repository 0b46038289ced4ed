package filesource

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Stream is what a Directory serves: the stream of one key at this origin.
type Stream interface {
	// InterestChanged receives when the interest is newer than the one that Interest returned.
	InterestChanged() <-chan struct{}
	// Interest returns the newest interest, nil if there is none. The function returns the names of a
	// type that were unsubscribed at some time since the last call.
	Interest() (*snapshot.Interest, func(xds.TypeURL) map[string]struct{})
	// Newest is the newest snapshot of a type, nil if none.
	Newest(xds.TypeURL) *snapshot.Snapshot
	// Opened records that the directory is readable. It is called once for each call of Serve.
	Opened()
	// Responded records that the stream brought what the directory has.
	Responded()
	// Apply hands an update over and waits until it is applied. It reports whether that made
	// another snapshot. Serve returns its error unchanged.
	Apply(context.Context, snapshot.Update) (changed bool, err error)
	// Trace begins the trace of an update; nil: it is not traced.
	Trace(received time.Time) *tracing.Update
	// Counters are the metrics of a type.
	Counters(xds.TypeURL) *telemetry.TypeMetrics
}

// ErrNothingWanted is what Serve returns once the interest is empty.
var ErrNothingWanted = errors.New("no resources are requested any more")

// mergeFor is how long interest changes are gathered (P52 allows 20 ms).
const mergeFor = 5 * time.Millisecond

// session is one call of Serve. It needs no goroutine, because the content is complete and
// available at once.
type session struct {
	directory *Directory
	stream    Stream
}

// WaitBeforeRetry waits for d, or until the directory is readable, or until ctx ends.
func (d *Directory) WaitBeforeRetry(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		now, changed := d.load()
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

// Serve serves the stream's interest until ctx ends, and returns why it ended:
// never nil. It fails at once if the directory is not readable.
func (d *Directory) Serve(ctx context.Context, stream Stream) error {
	s := session{d, stream}
	now, changed := s.directory.load()
	for now == nil {
		select {
		case <-changed:
			now, changed = s.directory.load()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if now.failed != nil {
		return now.failed
	}
	s.stream.Opened()
	sent := make(map[xds.TypeURL]*sentState)
	interest, again := s.stream.Interest()
	for {
		if err := s.send(ctx, sent, now, interest, again); err != nil {
			return err
		}
		again = nil
		s.stream.Responded()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-s.stream.InterestChanged():
			sleep(ctx, mergeFor)
			if interest, again = s.stream.Interest(); interest.Empty() {
				return ErrNothingWanted
			}
		}
		now, changed = s.directory.load()
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// send hands over the changes that the group does not have yet, in the order of types (P35).
func (s *session) send(ctx context.Context, sent map[xds.TypeURL]*sentState, now *contents, interest *snapshot.Interest,
	again func(xds.TypeURL) map[string]struct{}) error {
	var types []snapshot.TypeInterest
	if interest != nil {
		types = slices.Clone(interest.Types)
	}
	slices.SortStableFunc(types, func(a, b snapshot.TypeInterest) int {
		return int(xds.TypeOf(a.Type).Order) - int(xds.TypeOf(b.Type).Order)
	})
	maps.DeleteFunc(sent, func(typ xds.TypeURL, _ *sentState) bool { return interest.Of(typ).Empty() })
	for _, t := range types {
		if t.Empty() {
			continue
		}
		if sent[t.Type] == nil {
			sent[t.Type] = &sentState{contents: noContents}
		}
		var forgotten map[string]struct{}
		if again != nil {
			forgotten = again(t.Type)
		}
		at := time.Now()
		u, any := sent[t.Type].update(t, forgotten, now.ofType(t.Type), s.stream.Newest(t.Type), at)
		if !any {
			continue
		}
		trace := s.stream.Trace(at)
		trace.Read(tracing.Response{Type: u.Type, Version: u.Version, Resources: len(u.Changed), Removed: len(u.Removed)}, nil)
		trace.Handed(len(u.Changed), len(u.Removed))
		changed, err := s.stream.Apply(tracing.With(ctx, trace), u)
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
		s.stream.Counters(u.Type).Updates[result].Inc()
	}
	return nil
}

// sentState is what was sent to a group of a type on this attempt.
type sentState struct {
	subscribed snapshot.TypeInterest
	contents   *typeContents
}

// update returns the changes from the sent state to the current content, if there are any, and
// records them as sent. forgotten has the names that the group has forgotten since they were sent,
// because they were unsubscribed for a while. held is what the group holds, maybe from another origin.
// A name that no resource has is reported as absent, because the files are complete (P25).
func (s *sentState) update(want snapshot.TypeInterest, forgotten map[string]struct{}, now *typeContents, held *snapshot.Snapshot, at time.Time) (u snapshot.Update, any bool) {
	changed := differences(s.contents, now)
	was := s.subscribed
	first := want.Wildcard && (!was.Wildcard || was.WildcardID != want.WildcardID)
	if first {
		for name := range now.resources {
			changed[name] = struct{}{}
		}
		for r := range held.Part(snapshot.ByWildcard).Resources {
			changed[r.Name] = struct{}{}
		}
		for name := range held.Part(snapshot.ByWildcard).ExpiredNames { // clients may still hold it
			changed[name] = struct{}{}
		}
	}
	requested := func(r *xds.Resource) bool { return r != nil && (want.Wildcard || r.RequestedBy(want.Names)) }
	if !want.Wildcard {
		maps.DeleteFunc(changed, func(name string, _ struct{}) bool {
			return !want.Names.Has(name) && !requested(s.contents.resources[name]) && !requested(now.resources[name])
		})
		add := func(name string) { // with the resources that have it as an alias
			for _, names := range [][]string{{name}, now.byAlias[name], held.NamesByAlias(name)} {
				for _, n := range names {
					changed[n] = struct{}{}
				}
			}
		}
		for name, added := range was.Names.Diff(want.Names) {
			if added {
				add(name)
			}
		}
		for name := range forgotten {
			if want.Names.Has(name) {
				add(name)
			}
		}
	}
	renamed := s.contents.version != now.version
	pushed := renamed && s.contents != noContents // P15: a new version is a push
	s.subscribed, s.contents = want, now
	if !first && !renamed && len(changed) == 0 {
		return u, false
	}
	u = snapshot.Update{Type: want.Type, Version: now.version, Unversioned: now.version == "", Wildcard: want.Wildcard, WildcardID: want.WildcardID, Received: at}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		switch r := now.resources[name]; {
		case requested(r):
			u.Changed = append(u.Changed, r.StartTTL(at))
		case want.Wildcard, want.Names.Has(name) && len(now.byAlias[name]) == 0, held.Part(snapshot.ByName).Resource(name) != nil:
			u.Removed = append(u.Removed, name)
		}
	}
	for name, r := range now.resources {
		if pushed && requested(r) {
			u.Pushed = append(u.Pushed, name)
		}
	}
	return u, first || renamed || len(u.Changed)+len(u.Removed) > 0
}

func differences(a, b *typeContents) map[string]struct{} {
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
