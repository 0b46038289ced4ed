package orchestrator

import (
	"context"
	"sync"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// A disk may hang: what is read from it neither comes nor fails, as from a file system
// over a network whose other side is gone. Nobody waits for it for longer than clients
// bear, nor at the end: so what reads is let go, and its result taken if it comes. Of a
// disk that hangs a few readings do, and of a key one: a thread each.

const (
	// maxLoads is how many keys are read from disk at a time, and how many types for
	// what is to be written.
	maxLoads = 4
	// maxLoading is for how long clients wait for what is stored. From then on a key is
	// as one of which nothing is, until it is read.
	maxLoading = 30 * time.Second
	// maxSeeding is for how long who writes down waits for what is there.
	maxSeeding = 2 * time.Second
	// lastReads is for how long those that are read are waited for at the end.
	lastReads = time.Second
)

// loaded is what was read from disk.
type loaded struct {
	records map[xds.TypeURL]*remembered
	failed  bool // some could not be read
}

// reading is what a group waits for. Of the group's goroutine.
type reading struct {
	types []xds.TypeURL
	into  chan *loaded // room for one
	until time.Time    // when it hangs
	hung  bool
}

// come is what was read; nil: it is not.
func (r *reading) come(now time.Time) *loaded {
	select {
	case l := <-r.into:
		return l
	default:
		r.hung = r.hung || !now.Before(r.until)
		return nil
	}
}

// fetch has another goroutine read types, and tell the group of it.
func (g *Group) fetch(ctx context.Context, types []xds.TypeURL) *reading {
	r := &reading{types: types, into: make(chan *loaded, 1), until: time.Now().Add(maxLoading)}
	g.wg.Go(func() {
		g.registry.load(ctx, g.key, types, func(l *loaded) {
			r.into <- l
			g.signal()
		})
	})
	return r
}

// seed is what was good before the relay started; no record: nothing was.
type seed struct {
	*store.Record
	err error
}

// reads are all that read from disk now.
type reads struct {
	loads, seeds chan struct{} // as many as may
	wg           sync.WaitGroup

	mu   sync.Mutex
	keys map[xds.Key]chan struct{} // of which something is loaded; closed when it is
}

func newReads() reads {
	return reads{
		loads: make(chan struct{}, maxLoads), seeds: make(chan struct{}, maxLoads),
		keys: make(map[xds.Key]chan struct{}),
	}
}

// end waits for those that are read, which a disk that hangs never are.
func (r *reads) end() {
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	t := time.NewTimer(lastReads)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// turn waits until nothing of a key is being loaded; false: ctx ended first.
func (r *reads) turn(ctx context.Context, key xds.Key) bool {
	for {
		r.mu.Lock()
		before := r.keys[key]
		if before == nil {
			r.keys[key] = make(chan struct{})
		}
		r.mu.Unlock()
		if before == nil {
			return true
		}
		select {
		case <-before:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *reads) yield(key xds.Key) {
	r.mu.Lock()
	over := r.keys[key]
	delete(r.keys, key)
	r.mu.Unlock()
	close(over)
}

// load has types of a key read from disk, for a few keys at a time, and returns when
// that has begun, or ctx ended.
func (r *Registry) load(ctx context.Context, key xds.Key, types []xds.TypeURL, done func(*loaded)) {
	if !r.reads.turn(ctx, key) {
		return
	}
	select {
	case r.reads.loads <- struct{}{}:
	case <-ctx.Done():
		r.reads.yield(key)
		return
	}
	r.reads.wg.Go(func() {
		l := r.loadNow(key, types)
		<-r.reads.loads
		r.reads.yield(key)
		done(l)
	})
}

func (r *Registry) loadNow(key xds.Key, types []xds.TypeURL) *loaded {
	out := &loaded{records: make(map[xds.TypeURL]*remembered)}
	for _, t := range types {
		rec, err := r.opts.Store.Load(key, t)       // which has reported what is wrong
		if err != nil && r.opts.Store.Has(key, t) { // else it is damaged
			out.failed = true
		}
		if rec != nil {
			until, guess := r.opts.Store.Expires(rec)
			out.records[t] = remember(rec, until, guess)
		}
	}
	return out
}

// seed has what was good of a key's type read; nil: too many are, for as long as was to
// be waited.
func (r *Registry) seed(key xds.Key, typ xds.TypeURL, enough <-chan time.Time) <-chan seed {
	select {
	case r.reads.seeds <- struct{}{}:
	case <-enough:
		return nil
	}
	into := make(chan seed, 1)
	r.reads.wg.Go(func() {
		rec, err := r.opts.Store.Seed(key, typ)
		<-r.reads.seeds
		into <- seed{rec, err}
	})
	return into
}
