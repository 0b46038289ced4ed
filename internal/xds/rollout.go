package xds

import (
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Rollout is how a version of one type under a key comes to its clients: when it
// came, and what became of the responses that carried it. A version is all
// generations in a row that say the same version: origins that spread one over
// several responses make one of it, and heartbeats make none (P62).
//
// It keeps no snapshot alive. Snapshots and responses in flight point to it. A
// stream counts once for a version. What was answered ahead (P19) does not count.
// Of a version that comes in several responses of the origin the last ACK
// counts: that of an earlier one is taken back when more of it is sent. A stream that was sent a newer version before it answered, and
// answers only that, is of the older one neither acknowledged nor refused.
type Rollout struct {
	// Fixed once made.
	id             uint32
	Version, Given string // as of the snapshot; bounded
	Lineage        uint64
	First          uint64 // generation of this version
	StateGen       uint64 // of the group, in which it came
	At             time.Time

	// Written by who makes the snapshots.
	newest           atomic.Uint64 // generation of this version
	changed, removed atomic.Int64
	parts            atomic.Uint32 // in which it came: parts
	mu               sync.Mutex    // for what follows, and no other is taken under it
	content          Version
	replaced         []replacement // sorted
	bytes            int           // of those
	added            parts         // in which it brought what nobody had asked for before
	rootless         bool          // the version before it is forgotten, and an older one is not

	// Anyone's.
	sent, acked, refused atomic.Uint32
	took                 [RolloutBuckets]atomic.Uint32
}

// RolloutBuckets is in how many the times from a version's coming to its ACKs are
// counted: the first is up to a millisecond, each has twice the time of the one
// before, and the last all above (17 minutes).
const RolloutBuckets = 22

// maxRolloutVersion bounds the text of a version that is kept, in bytes.
const maxRolloutVersion = 256

var rolloutIDs atomic.Uint32

// RolloutOf notes the snapshot, which was just made in the place of prev, and in
// which names changed for clients: it is of prev's rollout if it has the same
// version, else of a new one. It is called once, before anybody else has s.
func RolloutOf(prev, s *Snapshot, names []string) *Rollout {
	r := (*Rollout)(nil)
	if prev != nil && prev.Rollout != nil && prev.Lineage == s.Lineage && prev.Version == s.Version && prev.given == s.given {
		r = prev.Rollout
	}
	fresh := r == nil
	if fresh {
		r = &Rollout{
			id: rolloutIDs.Add(1), Version: clipVersion(s.Version), Given: clipVersion(s.given),
			Lineage: s.Lineage, First: s.Gen, StateGen: s.StateGen, At: time.Now(),
		}
		if r.id == 0 { // stands for none
			r.id = rolloutIDs.Add(1)
		}
		if prev == nil || s.Received.After(prev.Received) {
			if !s.Received.IsZero() {
				r.At = s.Received
			}
		}
	}
	if fresh || len(names) > 0 {
		r.newest.Store(s.Gen)
	}
	r.parts.Or(uint32(s.by()))
	r.mu.Lock()
	r.content = s.sum
	r.mu.Unlock()
	if prev == nil {
		r.changed.Add(int64(s.Len()))
	} else {
		for _, n := range names {
			switch had, has := prev.Held(n), s.Held(n); {
			case has != nil:
				r.changed.Add(1)
			case had != nil:
				r.removed.Add(1)
			}
		}
	}
	s.Rollout = r
	return r
}

func clipVersion(v string) string {
	if len(v) <= maxRolloutVersion {
		return v
	}
	return strings.Clone(v[:maxRolloutVersion])
}

// ID is a number that no other of the process has had for long; never 0.
func (r *Rollout) ID() uint32 { return r.id }

// Newest is the newest generation of this version: who took all of that has it.
func (r *Rollout) Newest() uint64 { return r.newest.Load() }

// Content is what the version would be that is made of the content, of all of it
// that came.
func (r *Rollout) Content() Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content
}

// Is reports whether people mean this version by v: the snapshot's, the origin's,
// or that made of the content.
func (r *Rollout) Is(v string) bool {
	v = clipVersion(v)
	return v != "" && (v == r.Version || v == r.Given || v == r.Content().String())
}

// Send counts a stream that was sent the version.
func (r *Rollout) Send() { r.sent.Add(1) }

// Ack counts a stream that acknowledged it.
func (r *Rollout) Ack() { r.acked.Add(1) }

// Time counts how long after its coming a stream acknowledged it, that was there
// when it came. What it returns takes that back.
func (r *Rollout) Time(d time.Duration) Timing {
	b := rolloutBucket(d)
	r.took[b].Add(1)
	return Timing(b + 1)
}

// Timing is how an ACK was counted by time.
type Timing uint8

// Untimed is that of an ACK that was not.
const Untimed Timing = 0

// Unack takes back an ACK, of a stream that was sent more of the version since.
func (r *Rollout) Unack(t Timing) {
	r.acked.Add(^uint32(0))
	if t != Untimed {
		r.took[t-1].Add(^uint32(0))
	}
}

// Refuse counts a stream that refused it.
func (r *Rollout) Refuse() { r.refused.Add(1) }

func rolloutBucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(bits.Len64(uint64((d-1)/time.Millisecond)), RolloutBuckets-1)
}

// RolloutBound is how long the times in a bucket are at most; 0: without a bound.
func RolloutBound(bucket int) time.Duration {
	if bucket >= RolloutBuckets-1 {
		return 0
	}
	return time.Millisecond << bucket
}

// RolloutCounts are a Rollout's numbers at some moment.
type RolloutCounts struct {
	Changed, Removed     int64
	Sent, Acked, Refused uint32
	Took                 [RolloutBuckets]uint32
}

// Counts returns the numbers.
func (r *Rollout) Counts() RolloutCounts {
	c := RolloutCounts{Changed: r.changed.Load(), Removed: r.removed.Load(), Sent: r.sent.Load(), Acked: r.acked.Load(), Refused: r.refused.Load()}
	for i := range r.took {
		c.Took[i] = r.took[i].Load()
	}
	return c
}

// Quantile is the time in which the part q of those that acknowledged it did so,
// from within its bucket as if they were spread evenly there; 0: nobody did.
func (c *RolloutCounts) Quantile(q float64) time.Duration {
	total := 0.0
	for _, n := range c.Took {
		total += float64(n)
	}
	if total == 0 {
		return 0
	}
	want, before := q*total, 0.0
	for i, n := range c.Took {
		if before+float64(n) < want || n == 0 {
			before += float64(n)
			continue
		}
		low, high := time.Duration(0), time.Millisecond<<i
		if i > 0 {
			low = high / 2
		}
		return low + time.Duration((want-before)/float64(n)*float64(high-low))
	}
	return time.Millisecond << (RolloutBuckets - 1)
}
