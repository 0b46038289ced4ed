package history

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Bounds on the remembered versions of a type: maxVersions, or fewVersions while all keys together
// have more than allVersions (some 300 bytes each).
const (
	maxVersions = 16
	fewVersions = 4
	allVersions = 1 << 16
)

// History is the history of all keys. Use New.
type History struct {
	versions atomic.Int64 // remembered over all keys
	undoLogs *snapshot.UndoLogs
	nacks    allNacks
}

// New makes a History. droppedGenerations and droppedNacks are called with the number that
// a bound over all keys removed; they must not block.
func New(droppedGenerations, droppedNacks func(n int)) *History {
	return &History{
		undoLogs: snapshot.NewUndoLogs(snapshot.UndoBytes, snapshot.UndoBytesEach, droppedGenerations),
		nacks: allNacks{
			dropped:  droppedNacks,
			rows:     rowList{max: allNackBytes, slotOf: func(r *nackRow) *slot { return &r.inAll }},
			rejected: rowList{max: allRejectedBytes, slotOf: func(r *nackRow) *slot { return &r.withRejected }},
		},
	}
}

// TypeHistory is the history of one type of a key.
type TypeHistory struct {
	all     *atomic.Int64     // remembered versions over all keys
	undoLog *snapshot.UndoLog // nil: resources of the type are not remembered

	mu       sync.Mutex
	versions []*snapshot.VersionProgress // the oldest first
}

// NewType makes the history of a type of a key.
func (h *History) NewType(t xds.Type) *TypeHistory {
	return &TypeHistory{all: &h.versions, undoLog: h.undoLogs.New(t)}
}

// Note adds the snapshot s. It was just made in the place of prev and differs from it in names.
func (t *TypeHistory) Note(prev, s *snapshot.Snapshot, names []string) {
	t.noteVersion(prev, s, names)
	t.undoLog.Note(prev, s, names)
}

func (t *TypeHistory) noteVersion(prev, s *snapshot.Snapshot, names []string) {
	v := snapshot.NoteVersion(prev, s, names, time.Now())
	if prev != nil && prev.Progress == v {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	most := maxVersions
	if t.all.Add(1) > allVersions {
		most = fewVersions
	}
	t.versions = append(t.versions, v)
	if n := len(t.versions) - most; n > 0 {
		t.versions = slices.Delete(t.versions, 0, n)
		t.all.Add(-int64(n))
	}
}

// Versions returns the newest versions, the newest first.
func (t *TypeHistory) Versions() []*snapshot.VersionProgress {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.versions)
	slices.Reverse(out)
	return out
}

// Past returns the remembered states that now replaced.
func (t *TypeHistory) Past(now *snapshot.Snapshot) snapshot.Past { return t.undoLog.Past(now) }

// Close forgets everything.
func (t *TypeHistory) Close() {
	t.mu.Lock()
	t.all.Add(-int64(len(t.versions)))
	t.versions = nil
	t.mu.Unlock()
	t.undoLog.Close()
}
