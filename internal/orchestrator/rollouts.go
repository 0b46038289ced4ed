package orchestrator

import (
	"slices"
	"sync"
	"sync/atomic"

	"xdsrelay/internal/xds"
)

// How many versions of a type are remembered: so many, unless over all keys there
// are more than a process is to pay for (some 300 bytes each); few always.
const (
	maxRollouts = 16
	fewRollouts = 4
	allRollouts = 1 << 16
)

// In how many bytes is noted what a version replaced, and over all keys: where that
// is full, few do.
const (
	maxReplaced = 16 << 10
	fewReplaced = 1 << 10
	allReplaced = 8 << 20
)

// past is what a registry's keys share in what is kept for people to read.
type past struct {
	rollouts  atomic.Int64
	replaced  atomic.Int64 // bytes
	histories *xds.Histories
	nacks     nackRows
}

// rollouts are the newest versions of a type, the oldest first. The group's
// goroutine adds; anyone reads.
type rollouts struct {
	over, bytes *atomic.Int64 // how many there are over all keys, and of what they replaced

	mu   sync.Mutex
	kept []*xds.Rollout
}

// note adds what a snapshot is of that was just made in the place of prev.
func (r *rollouts) note(prev, s *xds.Snapshot, names []string) {
	one := xds.RolloutOf(prev, s, names)
	room := maxReplaced
	if r.bytes.Load() > allReplaced {
		room = fewReplaced
	}
	r.bytes.Add(int64(one.Replace(prev, s, names, room)))
	if prev != nil && prev.Rollout == one {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	most := maxRollouts
	if r.over.Add(1) > allRollouts {
		most = fewRollouts
	}
	r.kept = append(r.kept, one)
	for len(r.kept) > most {
		r.bytes.Add(-int64(r.kept[0].Forget()))
		r.kept = slices.Delete(r.kept, 0, 1)
		r.over.Add(-1)
	}
}

// all returns them, the newest first.
func (r *rollouts) all() []*xds.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.kept)
	slices.Reverse(out)
	return out
}

// close forgets them.
func (r *rollouts) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over.Add(-int64(len(r.kept)))
	for _, one := range r.kept {
		r.bytes.Add(-int64(one.Forget()))
	}
	r.kept = nil
}
