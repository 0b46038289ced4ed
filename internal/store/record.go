package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Record is the last known good of one key and type. It is immutable once made,
// and so is all that it points to.
type Record struct {
	Key  xds.Key
	Type xds.TypeURL
	// Node of the key's representative, on the wire (P58).
	Node []byte
	// Origin that said it, and its version of the type; "" if it gave none.
	Origin, Version string
	// Wildcard: the entries that are Wild are all of the origin's answer to the
	// wildcard, but for what is not stored.
	Wildcard bool
	// Received is when the newest change in it came.
	Received time.Time
	// Confirmed is when it was last known to be what the origin has: store.max_age
	// counts from it.
	Confirmed time.Time
	// Entries in order of names; where the wildcard and the name itself brought
	// one, the wildcard's comes first.
	Entries []Entry
}

// Entry is what came for the wildcard, or for the name itself (P50).
type Entry struct {
	Resource *xds.Resource
	Wild     bool
}

// Source gives what is good now. It is compared by ==, so a pointer does best.
type Source interface {
	// Good returns what may be served after a restart; nil: nothing, and what is on
	// disk goes. known is false if that cannot be told now: what is on disk stays, and
	// it is asked again. It is asked now and then though nothing was touched, to hear
	// when that was confirmed: then nil says nothing. It is not called twice at a time,
	// and may call Load, Seed and Has.
	Good() (r *Record, known bool)
}

// size is about what a record takes in memory.
func (r *Record) size() int64 {
	if r == nil {
		return 0
	}
	n := int64(len(r.Node)) + int64(len(r.Entries))*32
	for _, e := range r.Entries {
		n += e.Resource.Size()
	}
	return n
}

// order of entries.
func order(a, b Entry) int {
	if c := cmp.Compare(a.Resource.Name, b.Resource.Name); c != 0 {
		return c
	}
	switch {
	case a.Wild == b.Wild:
		return 0
	case a.Wild:
		return -1
	}
	return 1
}

// keep is the last gate before the disk: it returns r without what must not be
// stored, in order, and nil if nothing is left. The caller has told by the type
// that r is not of Secrets; here it is told of each resource by itself.
func keep(at slot, r *Record, m *telemetry.Store) (*Record, error) {
	if r == nil {
		return nil, nil
	}
	var left [3]int
	why := func(e Entry) (telemetry.Unstorable, bool) {
		switch {
		case xds.TypeOf(e.Resource.TypeURL()).Secret:
			return telemetry.StoreSecret, true
		case e.Resource.Storable():
			return 0, false
		case e.Resource.Uncacheable:
			return telemetry.StoreUncached, true
		}
		return telemetry.StoreTimed, true
	}
	out := *r
	out.Key, out.Type, out.Entries = at.key, at.typ, nil
	for i, e := range r.Entries {
		u, is := why(e)
		switch {
		case is && left == [3]int{}:
			out.Entries = slices.Clone(r.Entries[:i])
			left[u]++
		case is:
			left[u]++
		case left != [3]int{}:
			out.Entries = append(out.Entries, e)
		}
	}
	if left == [3]int{} {
		out.Entries = r.Entries
	}
	for u, n := range left {
		m.LeftOut(telemetry.Unstorable(u), n)
	}
	if !slices.IsSortedFunc(out.Entries, order) {
		out.Entries = slices.Clone(out.Entries)
		slices.SortFunc(out.Entries, order)
	}
	for i := 1; i < len(out.Entries); i++ {
		if order(out.Entries[i-1], out.Entries[i]) == 0 {
			return nil, fmt.Errorf("resource %q is in it twice", out.Entries[i].Resource.Name)
		}
	}
	if len(out.Entries) == 0 && !out.Wildcard {
		return nil, nil // an empty answer to the wildcard is one
	}
	return &out, nil
}

// sum is equal for records that would be written alike, but for their times. It
// reads no bodies: the version of a content stands for it.
func (r *Record) sum() [sha256.Size]byte {
	h := sha256.New()
	b := make([]byte, 0, 4<<10)
	part := func(p []byte) {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	part([]byte(r.Type))
	for _, e := range r.Key.Elements() {
		part([]byte(e))
	}
	part(r.Node)
	part([]byte(r.Origin))
	part([]byte(r.Version))
	b = append(b, flag(r.Wildcard))
	b = binary.AppendUvarint(b, uint64(len(r.Entries)))
	for _, e := range r.Entries {
		if len(b) > 3<<10 {
			_, _ = h.Write(b) // into memory
			b = b[:0]
		}
		b = append(b, flag(e.Wild))
		b = e.Resource.AppendIdentity(b)
	}
	_, _ = h.Write(b)
	return [sha256.Size]byte(h.Sum(nil))
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}
