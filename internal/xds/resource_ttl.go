package xds

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// timing is the TTL that the origin gave with the resource or with its last heartbeat (P62).
type timing struct {
	ttl time.Duration
	// expires is the end of the TTL; zero before StartTTL.
	expires time.Time
}

// Limits of a TTL. A TTL that is not positive becomes minTTL: it is over at once, and clients that
// count in milliseconds need at least one. A TTL above maxTTL goes to clients unchanged, but never
// expires in the relay.
const (
	minTTL = time.Millisecond
	maxTTL = 100 * 365 * 24 * time.Hour
)

// TTL returns the TTL that the origin gave; 0 without one.
func (r *Resource) TTL() time.Duration {
	if r.timing == nil {
		return 0
	}
	return r.timing.ttl
}

// HasTTL reports whether the resource has a TTL. r may be nil.
func (r *Resource) HasTTL() bool { return r != nil && r.timing != nil }

// StartTTL returns the resource with its TTL counted from now. It returns r itself if there is no
// TTL.
func (r *Resource) StartTTL(now time.Time) *Resource {
	if r.timing == nil {
		return r
	}
	return r.RenewTTL(r.timing.ttl, now)
}

// RenewTTL returns a copy of the resource after a heartbeat at now with this TTL. The copy shares
// all bytes.
func (r *Resource) RenewTTL(ttl time.Duration, now time.Time) *Resource {
	out := *r
	out.timing = &timing{ttl: ttl, expires: now.Add(min(ttl, maxTTL))}
	return &out
}

// Renewed reports whether the TTL of r began at another time than that of had, or has another
// length. Clients that hold had must then be told.
func (r *Resource) Renewed(had *Resource) bool {
	return r.timing != nil && r.timing != had.timing
}

// Expiry returns the end of the TTL. It returns false without a TTL and before StartTTL. r may be
// nil.
func (r *Resource) Expiry() (time.Time, bool) {
	if r == nil || r.timing == nil || r.timing.expires.IsZero() {
		return time.Time{}, false
	}
	return r.timing.expires, true
}

// Expired reports whether the TTL is over at now.
func (r *Resource) Expired(now time.Time) bool {
	return r.timing != nil && !r.timing.expires.IsZero() && !now.Before(r.timing.expires)
}

// RemainingTTL returns the rest of the TTL at now, to send to a client. It shrinks in steps of a
// second. Clients that subscribe within one second can therefore share a response. It is never less
// than the real rest, and at least minTTL.
func (r *Resource) RemainingTTL(now time.Time) time.Duration {
	t := r.timing
	if t.expires.IsZero() {
		return t.ttl
	}
	age := now.Sub(t.expires.Add(-min(t.ttl, maxTTL)))
	return max(t.ttl-max(age, 0).Truncate(time.Second), minTTL)
}

// Fields of google.protobuf.Duration.
const (
	durationSeconds protowire.Number = 1
	durationNanos   protowire.Number = 2
)

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

// ttlSize returns the size of what appendTTL appends.
func ttlSize(d time.Duration) int { return fieldSize(durationSize(d)) }

func durationSize(d time.Duration) int {
	n := 0
	for _, part := range [...]uint64{uint64(d / time.Second), uint64(d % time.Second)} {
		if part > 0 {
			n += 1 + protowire.SizeVarint(part)
		}
	}
	return n
}

// NewExpiredMark returns a mark for a resource that is no longer held, although no origin said that
// it was deleted. The mark has no body. until is the end of its TTL (P62), and zero for a resource
// that must not be cached (P63).
func NewExpiredMark(name string, until time.Time) *Resource {
	r := &Resource{content: &content{Name: name}, rare: &rareFields{expired: true}}
	if !until.IsZero() {
		r.timing = &timing{expires: until}
	}
	return r
}

// ExpiredMark returns the mark of NewExpiredMark for r, with the aliases of r.
func (r *Resource) ExpiredMark(until time.Time) *Resource {
	out := NewExpiredMark(r.Name, until)
	out.rare.aliases = r.AliasesAndGlob()
	return out
}

// IsExpiredMark reports whether r is a mark of NewExpiredMark or ExpiredMark. r may be nil.
func (r *Resource) IsExpiredMark() bool { return r != nil && r.rare != nil && r.rare.expired }

// ExpiresBefore reports whether a client that holds had would keep it longer than the relay did,
// because had has a later end of its TTL, or none. The client must then be told. r is the mark of the
// expired resource; it may be nil.
func (r *Resource) ExpiresBefore(had *Resource) bool {
	return r != nil && r.timing != nil && (had.timing == nil || had.timing.expires.After(r.timing.expires))
}
