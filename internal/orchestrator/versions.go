package orchestrator

import (
	"slices"
	"sync"
	"sync/atomic"

	"xdsrelay/internal/xds"
)

// How many versions of a type are remembered: so many, unless there are more over all keys
// than allVersions (some 300 bytes each); then fewVersions.
const (
	maxVersions = 16
	fewVersions = 4
	allVersions = 1 << 16
)

// past is what a registry's keys share in what is kept for people to read.
type past struct {
	versions  atomic.Int64
	histories *xds.Histories
	nacks     nackRows
}

// recentVersions are the newest versions of a type. The group's goroutine adds; any
// goroutine reads.
type recentVersions struct {
	over *atomic.Int64 // how many there are over all keys

	mu   sync.Mutex
	kept []*xds.VersionProgress // the oldest first
}

// note adds the version of a snapshot that was just made in the place of prev.
func (r *recentVersions) note(prev, s *xds.Snapshot, names []string) {
	one := xds.NoteVersion(prev, s, names)
	if prev != nil && prev.Progress == one {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	most := maxVersions
	if r.over.Add(1) > allVersions {
		most = fewVersions
	}
	r.kept = append(r.kept, one)
	if n := len(r.kept) - most; n > 0 {
		r.kept = slices.Delete(r.kept, 0, n)
		r.over.Add(-int64(n))
	}
}

// all returns them, the newest first.
func (r *recentVersions) all() []*xds.VersionProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.kept)
	slices.Reverse(out)
	return out
}

// close forgets them.
func (r *recentVersions) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over.Add(-int64(len(r.kept)))
	r.kept = nil
}
