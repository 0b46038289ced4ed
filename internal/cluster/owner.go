package cluster

import (
	"slices"

	"xdsrelay/internal/xds"

	"github.com/zeebo/xxh3"
)

// Candidates returns the members that may own a key, the best first: members that are alive and
// ready, and have this relay's compat. Draining ones are last, except for this relay: while it drains,
// its keys keep their sources. The caller must not modify the members.
func (c *Cluster) Candidates(key xds.Key) []*Member {
	const (
		draining  = 1 << 63 // above all hashes
		indexBits = 1<<16 - 1
	)
	v := c.view.Load()
	h := xxh3.HashString(key.String())
	// A rank holds the hash of key and member, with the member's index in place of the lowest bits.
	// Numbers are sorted faster than members.
	var array [128]uint64
	ranks := array[:0]
	for i, m := range v.candidates {
		rank := mix(h^v.hashes[i])>>1&^indexBits | uint64(i)
		if m.Draining && !m.Self {
			rank |= draining
		}
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	out := make([]*Member, len(ranks))
	for i, rank := range ranks {
		out[i] = v.candidates[rank&indexBits]
	}
	return out
}

// mix returns a number of which each bit depends on all bits of x. It is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
