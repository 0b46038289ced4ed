package orchestrator

import (
	"sync/atomic"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// Store keeps the last known good on disk, as store.Store does.
type Store interface {
	// Touch says that src may have something new; it never blocks.
	Touch(key xds.Key, typ xds.TypeURL, src store.Source)
	// Release: src is not asked any more once it has returned.
	Release(key xds.Key, typ xds.TypeURL, src store.Source)
	// Expires is when a record is too old to be served; zero: never. guess: the clock
	// is wrong, or was.
	Expires(r *store.Record) (at time.Time, guess bool)
	// Has reports whether there may be something to load; no I/O.
	Has(key xds.Key, typ xds.TypeURL) bool
	// TooOld reports whether there is something, and it is too old to be served; no I/O.
	TooOld(key xds.Key, typ xds.TypeURL) bool
	// Load reads from disk; nil if there is nothing that may be served.
	Load(key xds.Key, typ xds.TypeURL) (*store.Record, error)
	// Seed is Load of what may be too old as well.
	Seed(key xds.Key, typ xds.TypeURL) (*store.Record, error)
}

// keeper says what of a view is to be written down (store.Source).
type keeper struct {
	group *Group
	view  *view
	good  xds.Good

	// heard: an origin has spoken of the type in this life.
	heard atomic.Bool
	// recalled is when what the view was given from disk was confirmed, UnixNano; 0:
	// nothing was.
	recalled atomic.Int64

	// Of the store's goroutine.
	seed    *store.Record // without its entries; nil: there was none
	seeded  bool
	seeding <-chan seed // nil: nothing is being read
	unread  time.Time   // since when what there was cannot be read; zero: it can
}

// carry is for how long, once an origin has been reached, what was good before the
// relay started stays though nobody has asked for it: clients come back one by one,
// and ask for one type after the other.
const carry = 10 * time.Minute

// newKeeper is nil where nothing is kept: Secrets are on no disk (P6).
func newKeeper(g *Group, v *view) *keeper {
	if g.opts.Store == nil || v.typ.Secret {
		return nil
	}
	return &keeper{group: g, view: v}
}

// touch says that something new is good, or may be.
func (k *keeper) touch() { k.group.opts.Store.Touch(k.group.key, k.view.typ.URL, k) }

// answered: the origin has spoken of the type. What was written down before the
// relay started may be confirmed by it, though no client has anything to acknowledge
// (P27).
func (k *keeper) answered() {
	if k != nil && !k.heard.Swap(true) {
		k.touch()
	}
}

// release ends the keeping; what is on disk stays.
func (k *keeper) release() {
	if k != nil {
		k.group.opts.Store.Release(k.group.key, k.view.typ.URL, k)
	}
}

// Good implements store.Source.
func (k *keeper) Good() (r *store.Record, known bool) {
	g, v := k.group, k.view
	if !k.seeded && !k.begin() && time.Since(k.unread) < carry {
		return nil, false
	}
	held := v.held.Load()
	carry := k.carries()
	if !carry && k.outdated() {
		k.seed = nil
		k.good.Seed(nil, false)
	}
	took, wildcard := k.good.Collect(held, carry, time.Now())
	if len(took) == 0 && !wildcard {
		return nil, k.seeded
	}
	k.seeded = true // what cannot be read is replaced by now
	r = &store.Record{
		Key: g.key, Type: v.typ.URL, Node: g.rep.Bytes(), Wildcard: wildcard, Confirmed: k.confirmed(),
		Entries: make([]store.Entry, 0, len(took)),
	}
	switch whole := k.good.Whole(); {
	case wildcard && whole != nil:
		r.Origin, r.Version, r.Received = whole.Origin, whole.Given(), whole.Received
	case wildcard && k.seed != nil, held == nil && k.seed != nil:
		r.Origin, r.Version, r.Received = k.seed.Origin, k.seed.Version, k.seed.Received
	case held != nil:
		r.Origin, r.Version, r.Received = held.Origin, held.Given(), held.Received
	}
	for _, t := range took {
		r.Entries = append(r.Entries, store.Entry{Resource: t.Resource, Wild: t.Wild})
	}
	return r, true
}

// begin reads what was good before the relay started. It reports false if that cannot
// be read now, which the store has reported: to write without it, or that nothing is
// good, would lose it for an error of a moment. What is damaged is nothing.
func (k *keeper) begin() bool {
	g, typ := k.group, k.view.typ.URL
	read, come := k.readSeed()
	if !come || read.err != nil && g.opts.Store.Has(g.key, typ) {
		if k.unread.IsZero() {
			k.unread = time.Now()
		}
		return false
	}
	k.seeded = true
	if was := read.Record; was != nil {
		head := *was
		head.Entries = nil
		k.seed = &head
		k.good.Seed(tookOf(was), was.Wildcard)
	}
	return true
}

// readSeed has that be read. It waits once, and not for long: who releases the keeper
// waits for it, and a disk may hang.
func (k *keeper) readSeed() (read seed, come bool) {
	if k.seeding != nil {
		select {
		case read = <-k.seeding:
			k.seeding = nil
			return read, true
		default:
			return seed{}, false
		}
	}
	wait := time.NewTimer(maxSeeding)
	defer wait.Stop()
	k.seeding = k.group.registry.seed(k.group.key, k.view.typ.URL, wait.C)
	if k.seeding == nil {
		return seed{}, false
	}
	select {
	case read = <-k.seeding:
		k.seeding = nil
		return read, true
	case <-wait.C:
		return seed{}, false
	}
}

// carries reports whether what was good before the relay started, and nobody has
// asked for, still is. Without an origin it is all that there is.
func (k *keeper) carries() bool {
	first := k.group.heardAt.Load()
	return first == nil || time.Since(*first) < carry || !k.group.connected()
}

// outdated: what was good before the relay started is too old to be served, by the
// clock as it is now.
func (k *keeper) outdated() bool {
	if k.seed == nil {
		return false
	}
	at, _ := k.group.opts.Store.Expires(k.seed)
	return !at.IsZero() && !time.Now().Before(at)
}

// confirmed is when the type was last known to be as the origin has it. What it has
// said nothing of since the start counts by the rest of the type; but if it is too
// old, the rest counts by it: the clock may be wrong, and set right while it is
// carried.
func (k *keeper) confirmed() time.Time {
	g := k.group
	switch at := g.confirmedAt.Load(); {
	case !k.heard.Load():
		if at := k.recalled.Load(); at != 0 {
			return time.Unix(0, at)
		}
		if k.seed != nil {
			return k.seed.Confirmed
		}
	case k.good.Carried() && k.outdated():
		return k.seed.Confirmed
	case !g.confirms() && at != nil: // gone, or back and mute
		return at.Round(0)
	}
	return time.Now()
}

func tookOf(r *store.Record) []xds.Took {
	out := make([]xds.Took, 0, len(r.Entries))
	for _, e := range r.Entries {
		out = append(out, xds.Took{Resource: e.Resource, Wild: e.Wild})
	}
	return out
}
