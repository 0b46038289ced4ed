package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Options of a Store. Path, Metrics and Log are needed.
type Options struct {
	Path string // a directory; Open makes it if it is missing
	// Interval is the least time between two writes of a key's type. After large writes it is longer: a
	// second for each 256 KiB, a minute at most.
	Interval time.Duration
	// MaxBytes bounds all files together; 0: no bound.
	MaxBytes int64
	// MaxAge is how long after its last confirmation a generation may be served; 0: no bound.
	MaxAge time.Duration

	Metrics *telemetry.Store
	Log     *slog.Logger

	// fault, if not nil, is called before each operation on the disk. Tests return an error of
	// the disk, or block as a disk that hangs.
	fault func(op, path string) error
}

const (
	// maxFiles bounds the list of files in memory.
	maxFiles = 1 << 18
	// maxWaiting bounds the generations that wait to be written.
	maxWaiting = 1 << 16
	// maxLoads is how many keys are read at a time.
	maxLoads = 4
	// hangsAfter is how long an operation on the disk may be without progress.
	hangsAfter = 5 * time.Second
	// retryEvery is how often the store tries to switch itself on again.
	retryEvery = time.Minute
)

// Entry is what belongs into the store: the newest generation of a key's type that any client
// acknowledged.
type Entry struct {
	Key      xds.Key
	Type     xds.TypeURL
	Snapshot *snapshot.Snapshot
	// Confirmed: the stream that brought it is open, and has brought a response.
	Confirmed bool
}

// Stored is what the store has of one key and type.
type Stored struct {
	Snapshot *snapshot.Snapshot
	// Until is when it becomes older than MaxAge; zero: never.
	Until time.Time
}

// Store keeps generations of types in a directory.
type Store struct {
	o     Options
	wake  chan struct{} // Run has something to do; holds one
	loads chan struct{} // has one element for each key that is being read
	// opened holds a directory that was opened and is not in use yet.
	opened chan *dir
	// wroteBytes is the size of the files of the last pass; only Run uses it.
	wroteBytes int64

	mu      sync.Mutex
	dir     *dir             // nil: the store is off
	off     error            // why it is off; nil: it is on
	hung    int              // operations that hang
	queue   []slot           // to be written, the oldest change first
	waiting map[slot]waiting // what is in the queue
	damaged []*file          // found damaged, to be set aside
	closed  bool             // nothing is accepted any more
	stats   Status
}

// waiting is a generation that is not written yet.
type waiting struct {
	snapshot *snapshot.Snapshot
	since    time.Time // of the oldest change
}

// Open locks the directory and lists its files. It fails if another relay uses the
// directory. If it cannot be written or hangs, the store is off, and Run tries again. Open
// starts nothing. Close, or Run when it returns, unlocks the directory.
func Open(o Options) (*Store, error) {
	s := &Store{
		o: o, wake: make(chan struct{}, 1), loads: make(chan struct{}, maxLoads), opened: make(chan *dir, 1),
		waiting: make(map[slot]waiting),
	}
	s.stats.Path = o.Path
	if err := s.open(); errors.Is(err, errInUse) {
		return nil, fmt.Errorf("store %s: %w", o.Path, err)
	} else if err != nil {
		s.turnOff(err)
	}
	return s, nil
}

// Put queues a generation that a client acknowledged in whole. It never blocks. While the
// store is off it does nothing.
func (s *Store) Put(key xds.Key, typ xds.TypeURL, snapshot *snapshot.Snapshot) {
	if key.IsZero() || xds.TypeOf(typ).Secret {
		return // P6
	}
	at := slot{key, typ}
	s.mu.Lock()
	defer s.mu.Unlock()
	w, waits := s.waiting[at]
	switch {
	case s.closed || s.off != nil || waits && w.snapshot.Lineage == snapshot.Lineage && w.snapshot.Gen >= snapshot.Gen:
		return // in the last case another goroutine was faster
	case !waits && len(s.queue) >= maxWaiting:
		s.o.Metrics.Wrote(telemetry.GivenUp)
		return
	case !waits:
		w.since = time.Now()
		s.queue = append(s.queue, at)
	}
	w.snapshot = snapshot
	s.waiting[at] = w
	s.showQueue()
	s.notifyRun()
}

// Load returns what is stored of a key and may be served, by type. It reads the disk, and
// gives up after 5 s if the disk hangs.
func (s *Store) Load(ctx context.Context, key xds.Key) map[xds.TypeURL]*Stored {
	select {
	case s.loads <- struct{}{}:
		defer func() { <-s.loads }()
	case <-ctx.Done():
		return nil
	}
	s.mu.Lock()
	var files []*file
	if s.dir != nil && s.off == nil {
		for _, name := range s.dir.ofKey[prefix(key)] {
			files = append(files, s.dir.files[name])
		}
	}
	out := make(map[xds.TypeURL]*Stored)
	for at, w := range s.waiting { // newer than its file
		if at.key == key {
			out[at.typ] = s.serve(w.snapshot, time.Now())
		}
	}
	s.mu.Unlock()
	for _, f := range files {
		if ctx.Err() != nil {
			return nil
		}
		rec, result := s.load(f, key)
		if rec != nil && out[rec.typ] == nil {
			out[rec.typ] = s.serve(rec.snapshot, f.confirmed)
		}
		s.o.Metrics.Loaded(result)
		if s.isOff() {
			break
		}
	}
	if len(out) == 0 {
		s.o.Metrics.Loaded(telemetry.NoneStored)
	}
	return out
}

func (s *Store) serve(snapshot *snapshot.Snapshot, confirmed time.Time) *Stored {
	out := &Stored{Snapshot: snapshot}
	if s.o.MaxAge > 0 {
		out.Until = confirmed.Add(s.o.MaxAge)
	}
	return out
}

// load reads a file; nil: nothing of it may be served.
func (s *Store) load(f *file, key xds.Key) (*record, telemetry.Load) {
	if s.o.MaxAge > 0 && time.Since(f.confirmed) > s.o.MaxAge {
		return nil, telemetry.TooOld
	}
	var b []byte
	path := filepath.Join(s.o.Path, f.name)
	err := s.disk("read", path, func(func()) (err error) {
		b, err = os.ReadFile(path)
		return err
	})
	var rec *record
	if err == nil {
		rec, err = decode(b)
	}
	if err == nil && (rec.key != key || rec.slot.name() != f.name) {
		rec, err = nil, damaged("the content is of key %s and type %s", rec.key, rec.typ)
	}
	switch {
	case err == nil:
		return rec, telemetry.Served
	case errors.Is(err, fs.ErrNotExist):
		return nil, telemetry.NoneStored
	case errors.Is(err, errDamaged):
		s.o.Log.Error("store: damaged file set aside", "path", path, "key", key, "error", err)
		s.mu.Lock()
		s.damaged = append(s.damaged, f)
		s.mu.Unlock()
		s.notifyRun()
		return nil, telemetry.LoadDamaged
	case errors.Is(err, ErrHangs):
		s.turnOff(err)
	default:
		s.o.Log.Error("store: cannot read a file", "path", path, "key", key, "error", err)
	}
	return nil, telemetry.LoadFailed
}

// Status is what operators read about the store. Its times are in UTC and whole seconds.
type Status struct {
	Path string `json:"path"`
	// Files of the last known good, and the bytes of all files.
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	SetAside int       `json:"damaged_files"`   // files of another format included
	Oldest   time.Time `json:"oldest,omitzero"` // the earliest time of the last confirmation of a file
	Waiting  int       `json:"unwritten"`       // types of keys with a generation that is not written
	// Written and the others count since the start.
	Written uint64 `json:"written"`
	Failed  uint64 `json:"failed"`
	Evicted uint64 `json:"evicted"`
	Damaged uint64 `json:"damaged"`
	Off     bool   `json:"off"` // nothing is read or written, because of LastError
	// LastError of the disk, and its time.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Status returns the present status.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Waiting, out.Off = len(s.queue), s.off != nil
	out.LastErrorAt = out.LastErrorAt.UTC().Truncate(time.Second)
	if s.dir == nil {
		return out
	}
	out.Bytes = s.dir.bytes
	for _, f := range s.dir.files {
		if f.damaged {
			out.SetAside++
			continue
		}
		out.Files++
		if out.Oldest.IsZero() || f.confirmed.Before(out.Oldest) {
			out.Oldest = f.confirmed
		}
	}
	out.Oldest = out.Oldest.UTC().Truncate(time.Second)
	return out
}

func (s *Store) notifyRun() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Store) isOff() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off != nil
}

// showQueue sets the metric of the oldest unwritten change. The caller holds mu.
func (s *Store) showQueue() {
	var since time.Time
	if len(s.queue) > 0 {
		since = s.waiting[s.queue[0]].since
	}
	s.o.Metrics.Unwritten(since)
}

// showFiles sets the metrics of the directory. The caller holds mu.
func (s *Store) showFiles() {
	files, bytes := 0, int64(0)
	if s.dir != nil {
		for _, names := range s.dir.ofKey {
			files += len(names)
		}
		bytes = s.dir.bytes
	}
	s.o.Metrics.Files.Set(files)
	s.o.Metrics.Bytes.Set(int(bytes))
}
