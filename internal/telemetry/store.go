package telemetry

import (
	"sync/atomic"
	"time"
)

// Store has the metrics of the last known good on disk.
type Store struct {
	Files *Gauge // without damaged files
	Bytes *Gauge // of all files of the directory
	// Damaged counts files that were set aside.
	Damaged Counter
	// Evicted counts files that were removed for lack of room.
	Evicted Counter
	// Off is 1 while the store is switched off because of its disk.
	Off *Gauge

	start    time.Time
	unwrote  atomic.Int64 // when the oldest unwritten change came, since start; 0: none
	writes   map[Stored]Counter
	loads    map[Load]Counter
	unstored map[Unstorable]Counter
}

// Wrote counts the result of writing a change.
func (s *Store) Wrote(r Stored) { s.writes[r].Inc() }

// Loaded counts the result of loading a key's type.
func (s *Store) Loaded(r Load) { s.loads[r].Inc() }

// LeftOut counts resources that are not stored.
func (s *Store) LeftOut(u Unstorable, n int) { s.unstored[u].Add(n) }

// Unwritten records when the oldest unwritten change came; zero: there is none.
func (s *Store) Unwritten(since time.Time) {
	if since.IsZero() {
		s.unwrote.Store(0)
		return
	}
	s.unwrote.Store(max(1, int64(since.Sub(s.start))))
}

// UnwrittenAge is how long the oldest unwritten change has waited.
func (s *Store) UnwrittenAge() time.Duration {
	at := s.unwrote.Load()
	if at == 0 {
		return 0
	}
	return max(0, time.Since(s.start)-time.Duration(at))
}

// makeStore makes the metrics of the store. They exist without a store too.
func (m *Metrics) makeStore() {
	s := &m.Store
	s.start = m.start
	s.Files = m.gauge("store_files", "Files of the last known good, without damaged ones.", nil)
	s.Bytes = m.gauge("store_bytes", "Size of all files of the store, damaged ones included.", nil)
	s.Damaged = m.counter("store_damaged_total", "Files of the store that were found damaged and set aside.", nil)
	s.Evicted = m.counter("store_evicted_total", "Files of the store that were removed for lack of room.", nil)
	s.Off = m.gauge("store_off", "1 while the store is switched off because its disk fails or hangs.", nil)
	s.writes = byLabel(m.counter, "store_writes_total", "Changes for the store, by result.", nil, "result", stored)
	s.loads = byLabel(m.counter, "store_loads_total", "Files that the store read when a key came into use, by result.", nil, "result", loads)
	s.unstored = byLabel(m.counter, "store_left_out_total", "Resources that are never stored, by reason.", nil, "reason", unstorables)
	m.read("store_unwritten_age_seconds", "How long the oldest unwritten change has waited.", func() float64 { return s.UnwrittenAge().Seconds() })
}

// Stored is the result of writing a change.
type Stored string

// The results.
const (
	Written         Stored = "written"
	RemovedFromDisk Stored = "removed"
	WriteFailed     Stored = "failed"    // it is retried
	TooBig          Stored = "too_large" // alone over store.max_bytes
	GivenUp         Stored = "given_up"  // given up: no time, or no room in memory to wait
)

var stored = []Stored{Written, RemovedFromDisk, WriteFailed, TooBig, GivenUp}

// Load is the result of loading.
type Load string

// The results.
const (
	Served      Load = "served"
	NoneStored  Load = "none"    // nothing is stored
	TooOld      Load = "too_old" // older than store.max_age
	LoadDamaged Load = "damaged" // damaged, and set aside
	LoadFailed  Load = "error"   // it could not be read
)

var loads = []Load{Served, NoneStored, TooOld, LoadDamaged, LoadFailed}

// Unstorable is why a resource is not stored.
type Unstorable string

// The reasons.
const (
	StoreSecret   Unstorable = "secret"       // a Secret (P6)
	StoreUncached Unstorable = "do_not_cache" // do_not_cache (P63)
	StoreTimed    Unstorable = "ttl"          // it has a TTL (P62)
)

var unstorables = []Unstorable{StoreSecret, StoreUncached, StoreTimed}
