package orchestrator

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

	mu      sync.Mutex
	kept    []*xds.Rollout
	awaited []awaitedVersion
}

// awaitedVersion is a version for which somebody waits: it is not forgotten.
type awaitedVersion struct {
	version string
	found   uint64 // its generation; 0: it has not come
	asked   time.Time
}

// How many versions of a type somebody may wait for, and how long after they asked last
// they are taken to go on: more wait as well, for what is not forgotten by itself.
const (
	maxAwaited = 64
	awaitedFor = 5 * time.Minute
	// maxAwaitedVersion bounds the text of one, in bytes: no version is longer.
	maxAwaitedVersion = 256
)

// await notes that somebody waits for a version.
func (r *rollouts) await(version string, found uint64, now time.Time) {
	version = strings.Clone(version[:min(len(version), maxAwaitedVersion)])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited = slices.DeleteFunc(r.awaited, func(a awaitedVersion) bool {
		return a.version == version && (a.found == found || a.found == 0) || now.Sub(a.asked) >= awaitedFor
	})
	if len(r.awaited) >= maxAwaited { // what has not come, then who asked least lately
		at := max(0, slices.IndexFunc(r.awaited, func(a awaitedVersion) bool { return a.found == 0 }))
		r.awaited = slices.Delete(r.awaited, at, at+1)
	}
	r.awaited = append(r.awaited, awaitedVersion{version, found, now})
}

// forget lets go of the oldest, but for those that are awaited: of several that are
// called the same, the newest.
func (r *rollouts) forget(most int) {
	now := time.Now()
	awaited := make(map[*xds.Rollout]bool)
	for _, a := range r.awaited {
		if now.Sub(a.asked) >= awaitedFor {
			continue
		}
		for _, one := range slices.Backward(r.kept) {
			if one.Is(a.version) || one.First <= a.found && a.found <= one.Newest() {
				awaited[one] = true
				break
			}
		}
	}
	for i := 0; len(r.kept)-len(awaited) > most; {
		one := r.kept[i]
		if awaited[one] {
			i++
			continue
		}
		r.bytes.Add(-int64(one.Forget()))
		r.kept = slices.Delete(r.kept, i, i+1)
		r.over.Add(-1)
		if i > 0 {
			r.kept[i].Uproot()
		}
	}
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
	if len(r.kept) > most {
		r.forget(most)
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
