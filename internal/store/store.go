package store

import (
	"container/heap"
	"container/list"
	"log/slog"
	"os"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Options of a Store. Path, Metrics and Log are needed.
type Options struct {
	Path string // a directory, which is made if it is missing
	// Interval is the least time between two writings of a key's type.
	Interval time.Duration
	// MaxBytes bounds all files together; 0: no bound.
	MaxBytes int64
	// MaxAge: what was not confirmed for longer is not served; 0: no bound.
	MaxAge time.Duration

	Metrics *telemetry.Store
	Log     *slog.Logger
	// Now is the wall clock, which MaxAge is held against; nil: time.Now. All else
	// goes by the monotonic one.
	Now func() time.Time

	// fault, if there is one, is asked before each use of the disk: its error is
	// that of the disk. For tests.
	fault func(op, path string) error
}

// Bounds of what the store has in memory.
const (
	// maxFiles bounds the index: of more, those go that were confirmed longest ago.
	maxFiles = 1 << 18
	// maxTaken bounds what was taken from released sources and could not be written
	// yet, in bytes.
	maxTaken = 64 << 20
)

// Store keeps records in a directory.
type Store struct {
	o    Options
	lock *os.File

	wake chan struct{} // Run is to look; holds one

	// mu protects what follows.
	mu    sync.Mutex
	asked sync.Cond        // an item is not asking any more
	index map[string]*file // add and forget keep it, and what follows
	ages  ages
	bytes int64 // of the index's files
	items map[slot]*item
	queue queue
	// unwritten are the items of which something is not written, about in the order
	// in which it came.
	unwritten *list.List
	taken     int64 // bytes of what was taken from released sources and is not written
	agains    int   // items to be confirmed
	wrong     []*file
	aside     []*file // set aside, the oldest first
	spare     int64   // their bytes
	journal   int64   // bytes of the confirmed file
	stats     Status
	clock     wall
	over      bool // nothing new comes any more
	ended     bool // nothing is written any more
	ahead     bool // that a record is from the future was told
	stale     bool // the confirmed file says less than the index
	hangs     hanging
	opening   *opening // nil: the directory is open

	// Run's own.
	failures int // in a row
	evicted  int // since it was told
	told     time.Time
}

// item is a slot that has a source, or something to be written. The store's mu
// protects it.
type item struct {
	slot
	file string // its name
	src  Source // nil: released
	// taken is what the source had when it was released, if said; that may be
	// nothing. writing is what is being brought to the disk, if known; that may be
	// nothing as well, also once the disk did not take that. Both are newer than the file.
	taken, writing *Record
	said, known    bool
	asking         bool // the source is being called
	doing          bool // it is being brought to the disk

	// dirty: something may be new since the source was last asked. again: it is to
	// be asked when that was confirmed. With either it is in the queue.
	dirty, again bool
	due          time.Time
	at           int // in the queue; -1: not there

	// Of the oldest change that is not written, and of the oldest that came since
	// the source was last asked.
	since, next time.Time
	place       *list.Element // in unwritten; nil: all is written

	failures int
	tooLarge bool // that it is was told
}

// Touch says that something may be new at src, which is what speaks for the key
// and type from now on: the newest source counts. It never waits.
func (s *Store) Touch(key xds.Key, typ xds.TypeURL, src Source) {
	if key.IsZero() || src == nil || xds.TypeOf(typ).Secret {
		return // Secrets are not even asked for (P6)
	}
	at := slot{key, typ}
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	it := s.item(at)
	it.src = src // what was taken of another stays until this one was asked
	s.touch(it)
	s.mu.Unlock()
	s.stir()
}

// item returns that of a slot, which it makes. mu is held.
func (s *Store) item(at slot) *item {
	it := s.items[at]
	if it == nil {
		it = &item{slot: at, file: at.name(), at: -1}
		s.items[at] = it
	}
	return it
}

// drop lets go of what was taken. mu is held.
func (s *Store) drop(it *item) {
	s.taken -= it.taken.size()
	it.taken, it.said = nil, false
}

// newest is what is good by what was said last and is not on the disk; not ok: what is
// there is. mu is held.
func (it *item) newest() (rec *Record, ok bool) {
	switch {
	case it == nil:
		return nil, false
	case it.said:
		return it.taken, true
	}
	return it.writing, it.known
}

// touch has an item written when it may be. mu is held.
func (s *Store) touch(it *item) {
	now := time.Now()
	if !it.dirty {
		it.dirty, it.next = true, now
		if it.place == nil {
			it.since, it.place = now, s.unwritten.PushBack(it)
			s.tellOldest()
		}
	}
	s.push(it, now)
}

// settle follows that all is written but what came since the source was asked. mu
// is held.
func (s *Store) settle(it *item) {
	switch {
	case it.place == nil:
		return
	case it.dirty:
		it.since = it.next
		s.unwritten.MoveToBack(it.place)
	default:
		s.unwritten.Remove(it.place)
		it.place = nil
	}
	s.tellOldest()
}

// tellOldest has the metrics show since when something is not written. mu is held.
func (s *Store) tellOldest() {
	var since time.Time
	if first := s.unwritten.Front(); first != nil {
		since = first.Value.(*item).since
	}
	s.o.Metrics.Unwritten(since)
}

// push has an item looked at, at the earliest at now. mu is held.
func (s *Store) push(it *item, now time.Time) {
	if it.at >= 0 {
		return
	}
	it.due = now
	if f := s.index[it.file]; f != nil && !f.wrote.IsZero() {
		it.due = later(now, f.wrote.Add(s.o.Interval))
	}
	if it.failures > 0 {
		it.due = later(it.due, now.Add(s.backoff(it.failures)))
	}
	heap.Push(&s.queue, it)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stir has Run look.
func (s *Store) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Release says that src is not to be asked any more, and returns when it is not
// being asked. If something of it may be new it is asked once more, by this call:
// that is taken, and written in its time; at the end as well, for as long as there
// is some: who releases while the relay ends takes nothing from the disk by it. Of a
// source that does not speak for the key and type nothing happens.
func (s *Store) Release(key xds.Key, typ xds.TypeURL, src Source) {
	s.mu.Lock()
	it := s.items[slot{key, typ}]
	for it != nil && it.src == src && it.asking {
		s.asked.Wait()
	}
	if it == nil || it.src != src {
		s.mu.Unlock()
		return
	}
	if !it.dirty || s.ended {
		it.src = nil
		s.tidy(it)
		s.mu.Unlock()
		return
	}
	it.asking = true
	s.mu.Unlock()
	rec, ok, _ := s.ask(it.slot, src)
	s.mu.Lock()
	it.asking = false
	s.asked.Broadcast()
	lost := false
	if it.src == src { // else another speaks by now
		it.src = nil
		switch {
		case !ok && !it.said: // else what another had is still to be written
			s.undo(it)
		case ok && rec == nil && !it.doing && s.index[it.file] == nil: // nothing is good, and there is nothing
			s.drop(it)
			s.undo(it)
		case ok && !s.take(it, rec):
			s.undo(it)
			lost = true
		}
		s.tidy(it)
	}
	s.mu.Unlock()
	s.stir()
	if lost {
		s.giveUp(1, "too much waits to be written")
	}
}

// take keeps what a source had until it is written; false if there is no room. mu
// is held.
func (s *Store) take(it *item, rec *Record) bool {
	s.drop(it)
	if n := rec.size(); n > 0 && s.taken+n > maxTaken {
		return false
	}
	it.taken, it.said = rec, true
	s.taken += rec.size()
	return true
}

// ask returns what of the source's may be stored; not ok if that cannot be told, and
// later if it may be told then.
func (s *Store) ask(at slot, src Source) (rec *Record, ok, later bool) {
	good, known := src.Good()
	if !known {
		return nil, false, true
	}
	rec, err := keep(at, good, s.o.Metrics)
	if err != nil {
		s.o.Log.Error("store: what is good cannot be stored", "key", at.key, "type", at.typ, "error", err)
		s.o.Metrics.Wrote(telemetry.WriteFailed)
	}
	return rec, err == nil, false
}

// confirm notes when what a file has was last known to be what the origin has. mu
// is held.
func (s *Store) confirm(f *file, at time.Time) {
	if !f.confirmed.Equal(at) {
		f.confirmed, s.stale = at.Round(0), true
		heap.Fix(&s.ages, f.at)
	}
}

// undo takes an item from the queue, written or not. mu is held.
func (s *Store) undo(it *item) {
	it.dirty = false
	s.notAgain(it)
	if it.at >= 0 {
		heap.Remove(&s.queue, it.at)
	}
	if !it.doing {
		s.settle(it)
	}
}

func (s *Store) notAgain(it *item) {
	if it.again {
		it.again = false
		s.agains--
	}
}

// tidy forgets an item of which there is nothing to say. mu is held.
func (s *Store) tidy(it *item) {
	if it.src == nil && !it.dirty && !it.doing && !it.asking && s.items[it.slot] == it {
		s.undo(it) // nothing of it was taken: what was is written, or the item dirty
		delete(s.items, it.slot)
	}
}

// Status is what operators are shown.
type Status struct {
	Path string
	// Files of the last known good, and their size.
	Files int
	Bytes int64
	// Foreign are those of them that another version of the program wrote.
	Foreign int
	// SetAside are damaged files that are kept to be looked at, and their size.
	SetAside      int
	SetAsideBytes int64
	// Oldest is when the file was last confirmed of which that is longest ago.
	Oldest time.Time
	// Waiting is how much is new and not written, since Since.
	Waiting int
	Since   time.Time
	// Written and the others count since start.
	Written, Failed, Evicted, Damaged uint64
	// LastError of the disk, and when.
	LastError   string
	LastErrorAt time.Time
	// Failing: the last writing failed, or the disk hangs.
	Failing bool
}

// Status returns what is so now.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Files, out.Bytes = len(s.index), s.bytes
	out.SetAside, out.SetAsideBytes = len(s.aside), s.spare
	if out.Waiting = s.unwritten.Len(); out.Waiting > 0 {
		out.Since = s.unwritten.Front().Value.(*item).since
	}
	out.Failing = out.Failing || s.hangs.n > 0
	n := 0
	for _, f := range s.index {
		s.breathe(&n)
		if f.state == foreign {
			out.Foreign++
		}
		if f.state == whole && (out.Oldest.IsZero() || f.confirmed.Before(out.Oldest)) {
			out.Oldest = f.confirmed
		}
	}
	return out
}

// breathe lets others have mu now and then, of whom one may be acknowledging. It is
// called for each element of a map that is gone over: what the map gets or loses
// meanwhile may be passed over. mu is held before and after.
func (s *Store) breathe(n *int) {
	if *n++; *n%atATime == 0 {
		s.mu.Unlock()
		s.mu.Lock()
	}
}

// atATime is how many elements are gone over without a break.
const atATime = 256

// hook is where tests let the disk fail.
func (s *Store) hook(op, path string) error {
	if s.o.fault == nil {
		return nil
	}
	return s.o.fault(op, path)
}
