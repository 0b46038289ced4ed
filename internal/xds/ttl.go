package xds

import (
	"container/heap"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// timing is how long a resource lives, as the origin said when it last sent it
// or a heartbeat for it (P62).
type timing struct {
	ttl time.Duration
	// until is when that is over; zero before Start.
	until time.Time
}

// Bounds of a TTL. What is not positive is over at once, for which clients that
// count in milliseconds need one; what is over maxTTL goes to clients as it is,
// and never ends here.
const (
	minTTL = time.Millisecond
	maxTTL = 100 * 365 * 24 * time.Hour
)

// TTL as the origin gave it; 0 if it gave none.
func (r *Resource) TTL() time.Duration {
	if r.timing == nil {
		return 0
	}
	return r.timing.ttl
}

// Start returns the resource as it was received at now: its TTL runs from then.
// One without TTL is returned as it is.
func (r *Resource) Start(now time.Time) *Resource {
	if r.timing == nil {
		return r
	}
	return r.Renew(r.timing.ttl, now)
}

// Renew returns the resource as a heartbeat at now leaves it. All bytes are
// shared.
func (r *Resource) Renew(ttl time.Duration, now time.Time) *Resource {
	out := *r
	out.timing = &timing{ttl: ttl, until: now.Add(min(ttl, maxTTL))}
	return &out
}

// Renewed reports whether the TTL of r runs from another time than that of had,
// or is another: clients that hold had have to be told.
func (r *Resource) Renewed(had *Resource) bool {
	return r.timing != nil && r.timing != had.timing
}

// Expired reports whether the TTL is over at now.
func (r *Resource) Expired(now time.Time) bool {
	return r.timing != nil && !r.timing.until.IsZero() && !now.Before(r.timing.until)
}

// Left is what is left of the TTL at now, in the origin's steps: who comes
// within a second gets all of it, and then it shrinks second by second. So it is
// never less than what is left by the clock, and clients that come together
// share a response.
func (r *Resource) Left(now time.Time) time.Duration {
	t := r.timing
	if t.until.IsZero() {
		return t.ttl
	}
	age := now.Sub(t.until.Add(-min(t.ttl, maxTTL)))
	return max(t.ttl-max(age, 0).Truncate(time.Second), minTTL)
}

// Fields of google.protobuf.Duration.
const (
	durationSeconds protowire.Number = 1
	durationNanos   protowire.Number = 2
)

// appendTTL appends the field of a Resource.
func appendTTL(b []byte, d time.Duration) []byte {
	b = protowire.AppendTag(b, resourceTTL, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(durationSize(d)))
	if s := uint64(d / time.Second); s > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, durationSeconds, protowire.VarintType), s)
	}
	if n := uint64(d % time.Second); n > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, durationNanos, protowire.VarintType), n)
	}
	return b
}

func durationSize(d time.Duration) int {
	n := 0
	for _, part := range [...]uint64{uint64(d / time.Second), uint64(d % time.Second)} {
		if part > 0 {
			n += 1 + protowire.SizeVarint(part)
		}
	}
	return n
}

// ttlSize is the size of what appendTTL appends.
func ttlSize(d time.Duration) int { return fieldSize(durationSize(d)) }

// part is what the wildcard, or else the name itself, brought for a name (P50).
type part struct {
	name string
	wild bool
}

// timers are the resources of a Builder that expire, the first to do so first:
// one entry for each that has a TTL, and none for any other.
type timers struct {
	due []timer
	at  map[part]int // place in due
}

type timer struct {
	until time.Time
	part  part
}

// note follows what is held under a part.
func (t *timers) note(p part, r *Resource) {
	i, is := t.at[p]
	switch has := there(r) && r.timing != nil && !r.timing.until.IsZero(); {
	case has && is:
		t.due[i].until = r.timing.until
		heap.Fix(t, i)
	case has:
		heap.Push(t, timer{r.timing.until, p})
	case is:
		heap.Remove(t, i)
	}
}

func (t *timers) Len() int           { return len(t.due) }
func (t *timers) Less(i, j int) bool { return t.due[i].until.Before(t.due[j].until) }
func (t *timers) Swap(i, j int) {
	t.due[i], t.due[j] = t.due[j], t.due[i]
	t.at[t.due[i].part], t.at[t.due[j].part] = i, j
}

// Push and Pop are the heap's.
func (t *timers) Push(x any) {
	if t.at == nil {
		t.at = make(map[part]int)
	}
	t.at[x.(timer).part] = len(t.due)
	t.due = append(t.due, x.(timer))
}

func (t *timers) Pop() any {
	last := t.due[len(t.due)-1]
	t.due[len(t.due)-1] = timer{}
	t.due = t.due[:len(t.due)-1]
	delete(t.at, last.part)
	return last
}

// NextExpiry is when the next resource expires; zero: none will.
func (b *Builder) NextExpiry() time.Time {
	if len(b.timers.due) == 0 {
		return time.Time{}
	}
	return b.timers.due[0].until
}

// Expire lets go of what has expired by now, and returns how many resources
// that are. Nobody said that they are gone: who holds them counts their TTL
// alone, and no removal is sent (P62). What is left of each is when it expired.
func (b *Builder) Expire(now time.Time) int {
	n := 0
	for len(b.timers.due) > 0 && !b.timers.due[0].until.After(now) {
		due := b.timers.due[0]
		mark := hollow(due.part.name)
		mark.timing = &timing{until: due.until}
		b.lapse(due.part, mark)
		n++
	}
	return n
}

// Renewed returns the names covered by sub, sorted, whose TTL was renewed since
// from, and others that have one: new, or gone and back in between. The cost follows the log between the two where it
// reaches, else the size of s, or of sub if that is a list of names.
func (s *Snapshot) Renewed(from *Snapshot, sub *Subscription) []string {
	if !s.Timed() || s == from || from == nil {
		return nil
	}
	if log, ok := logBetween(from, s); ok {
		var names []string
		for _, c := range log {
			for _, n := range c.beats {
				if covers(from, s, sub, n) {
					names = append(names, n)
				}
			}
		}
		if len(log) > 1 {
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return names
	}
	var names []string
	s.Covered(sub, func(r *Resource) bool {
		if r.timing != nil {
			names = append(names, r.Name)
		}
		return true
	})
	return names
}

// Heartbeats counts the snapshots after from, up to and with to, that renewed
// the TTL of anything that sub covers; 1 where that cannot be told.
func Heartbeats(from, to *Snapshot, sub *Subscription) int {
	log, ok := logBetween(from, to)
	if !ok {
		return 1
	}
	n := 0
	for _, c := range log {
		if slices.ContainsFunc(c.beats, sub.Covers) {
			n++
		}
	}
	return n
}

// Lapsed calls yield for each name for which the part held something and does no
// more, though nobody said that it is gone, in order of names.
func (p Part) Lapsed(yield func(name string) bool) {
	if p.snap == nil || p.snap.lapsed == 0 {
		return
	}
	p.snap.entries.Scan(func(name string, e entry) bool { return !hasLapsed(p.of(e)) || yield(name) })
}

// AnyLapsed reports whether there is any such name.
func (p Part) AnyLapsed() (any bool) {
	for range p.Lapsed {
		return true
	}
	return false
}

// maxLapsed bounds the names of a wildcard, and those that came for handles, of
// which is remembered that they are held no more. What goes by these is the
// origin's choice, and over time has no other bound. One more is taken for removed.
const maxLapsed = 4096

// lapse lets go of what a part holds.
func (b *Builder) lapse(p part, mark *Resource) {
	e, _ := b.entries.Get(p.name)
	switch {
	case !p.wild && len(e.named.Handles()) == 0:
		e.named = mark
	case !p.wild && b.lapsed-b.lapsedWild < maxLapsed:
		m := *e.named.more
		m.lapsed = true
		e.named = hollow(p.name)
		e.named.timing, e.named.more = mark.timing, &m
	case !p.wild:
		e.named = nil
		b.unsettled[p.name] = struct{}{}
	case b.lapsedWild < maxLapsed:
		e.wild = mark
	default:
		e.wild = nil
	}
	b.set(p.name, e)
}

// hasLapsed reports whether a part stands for what is held no more: lapsed
// itself, or what is left of a resource that expired, which is when.
func hasLapsed(r *Resource) bool {
	return r == lapsed || r != nil && r.body == nil && (r.timing != nil || r.more != nil && r.more.lapsed)
}

// Outlived reports whether what r, which Look says has lapsed, stands for
// expired before had does, so that who holds that, and counts its TTL, has to be
// told: it was never sent the last word on when it ends.
func (r *Resource) Outlived(had *Resource) bool {
	return r != nil && r.timing != nil && (had.timing == nil || had.timing.until.After(r.timing.until))
}

// Uncacheable are the names for which something is held that is not to be
// cached (P63), of those that the wildcard brought, or of the others.
func (b *Builder) Uncacheable(wild bool) []string {
	var names []string
	for p := range b.uncached {
		if p.wild == wild {
			names = append(names, p.name)
		}
	}
	return names
}

// uncache lets go of what is not to be cached, since the stream that brought
// it, the wildcard's or that of names, has ended (P63). It reports whether there
// was any.
func (b *Builder) uncache(wild bool) (any bool) {
	for p := range b.uncached {
		if p.wild == wild {
			b.lapse(p, lapsed) // deleting from a map that is ranged over is fine
			any = true
		}
	}
	return any
}
