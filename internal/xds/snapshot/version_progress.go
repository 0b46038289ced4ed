package snapshot

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"xdsrelay/internal/xds"
)

// VersionProgress says how far a version of one type under a key has come: when it came, and how
// many streams were sent, acknowledged or NACKed a response with it. A version is all consecutive
// generations with one version text: an origin may split one over several responses, and heartbeats
// make no version (P62).
//
// It keeps no snapshot alive. Snapshots and responses without an ACK point to it. A stream counts
// once for a version. Responses sent before the ACK of an earlier one (P19) do not count. If a
// stream was sent a newer version before it answered, and answers only that, it counts for the
// newer one alone.
//
// It is safe for concurrent use.
type VersionProgress struct {
	// Set once.
	id             uint32
	Version, Given string // as in the snapshot, but truncated
	Lineage        uint64
	First          uint64 // first generation of this version
	StateNumber    uint64 // number of the group's State in which it came
	At             time.Time

	// Written by the goroutine that makes the snapshots.
	newest           atomic.Uint64 // newest generation of this version
	changed, removed atomic.Int64
	content          atomic.Pointer[xds.Version]

	// Written by any goroutine.
	sent, acked, nacked atomic.Uint32
	ackTimes            [AckBuckets]atomic.Uint32
}

// AckBuckets is the number of buckets for the times from a version's arrival to its ACKs. The first
// bucket has times up to 1 ms. Each following bucket has an upper bound twice as large. The last
// has all longer times (above 17 minutes).
const AckBuckets = 22

// maxVersionText is the maximum length of the version texts kept, in bytes.
const maxVersionText = 256

var versionIDs atomic.Uint32

// NoteVersion sets s.Progress. s was just made from prev at now, and names changed for clients. s
// shares the VersionProgress of prev if both have the same version. Otherwise it gets a new one.
// NoteVersion is called once, before s is published.
func NoteVersion(prev, s *Snapshot, names []string, now time.Time) *VersionProgress {
	v := (*VersionProgress)(nil)
	if prev != nil && prev.Progress != nil && prev.Lineage == s.Lineage && prev.Version == s.Version && prev.given == s.given {
		v = prev.Progress
	}
	isNew := v == nil
	if isNew {
		v = &VersionProgress{
			id: versionIDs.Add(1), Version: truncateVersion(s.Version), Given: truncateVersion(s.given),
			Lineage: s.Lineage, First: s.Gen, StateNumber: s.StateNumber, At: now,
		}
		if !s.Received.IsZero() && (prev == nil || s.Received.After(prev.Received)) {
			v.At = s.Received
		}
	}
	if isNew || len(names) > 0 {
		v.newest.Store(s.Gen)
	}
	sum := s.sum // a copy, because a pointer to s.sum would keep s alive
	v.content.Store(&sum)
	if prev == nil {
		v.changed.Add(int64(s.Len()))
	} else {
		for _, n := range names {
			switch had, has := prev.Resource(n), s.Resource(n); {
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

func truncateVersion(v string) string {
	if len(v) <= maxVersionText {
		return v
	}
	return strings.Clone(v[:maxVersionText])
}

// ID identifies the version in the process.
func (v *VersionProgress) ID() uint32 { return v.id }

// Newest returns the newest generation of this version that changed anything. A client that has
// this generation has the version.
func (v *VersionProgress) Newest() uint64 { return v.newest.Load() }

// Content returns the version made from the content, as of the newest snapshot.
func (v *VersionProgress) Content() xds.Version { return *v.content.Load() }

// Matches reports whether text names this version. It may be the snapshot's version, the origin's,
// or the one made from the content.
func (v *VersionProgress) Matches(text string) bool {
	text = truncateVersion(text)
	return text != "" && (text == v.Version || text == v.Given || text == v.Content().String())
}

// Send counts a stream that was sent the version.
func (v *VersionProgress) Send() { v.sent.Add(1) }

// Ack counts a stream that acknowledged it.
func (v *VersionProgress) Ack() { v.acked.Add(1) }

// Nack counts a stream that NACKed it.
func (v *VersionProgress) Nack() { v.nacked.Add(1) }

// AckTime counts an ACK that came d after the version arrived. It is called only for streams that
// existed when the version arrived.
func (v *VersionProgress) AckTime(d time.Duration) { v.ackTimes[ackBucket(d)].Add(1) }

func ackBucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(bits.Len64(uint64((d-1)/time.Millisecond)), AckBuckets-1)
}

// AckBound returns the upper bound of the times in a bucket; 0 for the last, which has none.
func AckBound(bucket int) time.Duration {
	if bucket >= AckBuckets-1 {
		return 0
	}
	return time.Millisecond << bucket
}

// VersionCounts has the numbers of a VersionProgress at one time.
type VersionCounts struct {
	Changed, Removed    int64
	Sent, Acked, Nacked uint32
	AckTimes            [AckBuckets]uint32
}

// Counts returns the current numbers. They are read one by one.
func (v *VersionProgress) Counts() VersionCounts {
	c := VersionCounts{Changed: v.changed.Load(), Removed: v.removed.Load(), Sent: v.sent.Load(), Acked: v.acked.Load(), Nacked: v.nacked.Load()}
	for i := range v.ackTimes {
		c.AckTimes[i] = v.ackTimes[i].Load()
	}
	return c
}

// QuantileBound returns a time within which the fraction q (0 to 1) of the ACKs came: the upper
// bound of a bucket, so the exact time may be half of it. It is 0 without ACKs. It is twice the
// last bound if they took longer than that, and then it is no bound.
func (c *VersionCounts) QuantileBound(q float64) time.Duration {
	total := 0.0
	for _, n := range c.AckTimes {
		total += float64(n)
	}
	sum := 0.0
	for i, n := range c.AckTimes {
		if sum += float64(n); n > 0 && sum >= q*total {
			return time.Millisecond << i
		}
	}
	return 0
}
