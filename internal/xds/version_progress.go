package xds

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"
)

// VersionProgress is how far a version of one type under a key has come: when it came, and
// how many streams were sent, acknowledged or refused a response that carried it. A
// version is all generations in a row that have the same version text: an origin may spread
// one over several responses, and heartbeats make none (P62).
//
// It keeps no snapshot alive. Snapshots and unanswered responses point to it. A stream
// counts once for a version. Responses that were sent ahead (P19) do not count. A stream
// that was sent a newer version before it answered, and answers only that, counts for the
// newer one alone.
type VersionProgress struct {
	// Fixed once made.
	id             uint32
	Version, Given string // as of the snapshot; bounded
	Lineage        uint64
	First          uint64 // generation of this version
	StateGen       uint64 // of the group, in which it came
	At             time.Time

	// Written by the goroutine that makes the snapshots.
	newest           atomic.Uint64 // generation of this version
	changed, removed atomic.Int64
	content          atomic.Pointer[Version]

	// Any goroutine's.
	sent, acked, refused atomic.Uint32
	took                 [AckBuckets]atomic.Uint32
}

// AckBuckets is in how many buckets the times from a version's coming to its ACKs are
// counted: the first is up to a millisecond, each has twice the time of the one
// before, and the last all above (17 minutes).
const AckBuckets = 22

// maxNotedVersion bounds the text of a version that is kept, in bytes.
const maxNotedVersion = 256

var versionIDs atomic.Uint32

// NoteVersion notes the snapshot, which was just made in the place of prev, and in which
// names changed for clients. The snapshot shares prev's VersionProgress if it has the same
// version; otherwise it gets a new one. It is called once, before anybody else has s.
func NoteVersion(prev, s *Snapshot, names []string) *VersionProgress {
	v := (*VersionProgress)(nil)
	if prev != nil && prev.Progress != nil && prev.Lineage == s.Lineage && prev.Version == s.Version && prev.given == s.given {
		v = prev.Progress
	}
	fresh := v == nil
	if fresh {
		v = &VersionProgress{
			id: versionIDs.Add(1), Version: clipVersion(s.Version), Given: clipVersion(s.given),
			Lineage: s.Lineage, First: s.Gen, StateGen: s.StateGen, At: time.Now(),
		}
		if v.id == 0 { // stands for none
			v.id = versionIDs.Add(1)
		}
		if prev == nil || s.Received.After(prev.Received) {
			if !s.Received.IsZero() {
				v.At = s.Received
			}
		}
	}
	if fresh || len(names) > 0 {
		v.newest.Store(s.Gen)
	}
	sum := s.sum // a pointer to s.sum would keep s alive
	v.content.Store(&sum)
	if prev == nil {
		v.changed.Add(int64(s.Len()))
	} else {
		for _, n := range names {
			switch had, has := prev.Held(n), s.Held(n); {
			case has != nil:
				v.changed.Add(1)
			case had != nil:
				v.removed.Add(1)
			}
		}
	}
	s.Progress = v
	return v
}

func clipVersion(v string) string {
	if len(v) <= maxNotedVersion {
		return v
	}
	return strings.Clone(v[:maxNotedVersion])
}

// ID is a number that no other version of the process has had for long; never 0.
func (v *VersionProgress) ID() uint32 { return v.id }

// Newest is the newest generation of this version that changed anything: a client that
// has that generation has the version.
func (v *VersionProgress) Newest() uint64 { return v.newest.Load() }

// Content is the version that would be made of the content, of all of it that came.
func (v *VersionProgress) Content() Version { return *v.content.Load() }

// Is reports whether people mean this version by text: the snapshot's, the origin's,
// or that made of the content.
func (v *VersionProgress) Is(text string) bool {
	text = clipVersion(text)
	return text != "" && (text == v.Version || text == v.Given || text == v.Content().String())
}

// Send counts a stream that was sent the version.
func (v *VersionProgress) Send() { v.sent.Add(1) }

// Ack counts a stream that acknowledged it.
func (v *VersionProgress) Ack() { v.acked.Add(1) }

// Refuse counts a stream that refused it.
func (v *VersionProgress) Refuse() { v.refused.Add(1) }

// Time counts how long after its coming a stream acknowledged it that was there when it
// came.
func (v *VersionProgress) Time(d time.Duration) { v.took[ackBucket(d)].Add(1) }

func ackBucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(bits.Len64(uint64((d-1)/time.Millisecond)), AckBuckets-1)
}

// AckBound is how long the times in a bucket are at most; 0: without a bound.
func AckBound(bucket int) time.Duration {
	if bucket >= AckBuckets-1 {
		return 0
	}
	return time.Millisecond << bucket
}

// VersionCounts are the numbers of a VersionProgress at some moment.
type VersionCounts struct {
	Changed, Removed     int64
	Sent, Acked, Refused uint32
	Took                 [AckBuckets]uint32
}

// Counts returns the numbers.
func (v *VersionProgress) Counts() VersionCounts {
	c := VersionCounts{Changed: v.changed.Load(), Removed: v.removed.Load(), Sent: v.sent.Load(), Acked: v.acked.Load(), Refused: v.refused.Load()}
	for i := range v.took {
		c.Took[i] = v.took[i].Load()
	}
	return c
}

// Quantile is the time in which the part q of those that acknowledged it did so,
// from within its bucket as if they were spread evenly there; 0: nobody did.
func (c *VersionCounts) Quantile(q float64) time.Duration {
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
	return time.Millisecond << (AckBuckets - 1)
}
