package upstream

import (
	"context"
	"sync"

	"xdsrelay/internal/xds"
)

// cell holds the newest interest and a one-slot signal that there is a newer
// one than was taken. It also remembers what was let go and asked for again
// between two takings: the group has forgotten it in between, so the origin has
// to be asked again although the list looks the same.
type cell struct {
	signal chan struct{}

	mu     sync.Mutex
	newest *xds.Interest
	lapsed lapses // since the last take; nil while nobody asks the origin
}

// lapses are by type what was wanted, then not, at some time.
type lapses map[xds.TypeURL]*lapse

type lapse struct {
	wildcard bool
	names    map[string]struct{}
}

func newCell() cell { return cell{signal: make(chan struct{}, 1)} }

// set stores the newest interest.
func (c *cell) set(i *xds.Interest) {
	c.mu.Lock()
	if c.lapsed != nil && c.newest != nil {
		for _, was := range c.newest.Types {
			c.lapsed.note(was, i.Of(was.Type))
		}
		for _, t := range i.Types {
			for _, name := range t.Again {
				c.lapsed.of(t.Type).names[name] = struct{}{}
			}
		}
	}
	c.newest = i
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// note records what was holds and is does not.
func (l lapses) note(was, is xds.TypeInterest) {
	if was.Wildcard && !is.Wildcard {
		l.of(was.Type).wildcard = true
	}
	for name, added := range was.Names.Diff(is.Names) {
		if !added {
			l.of(was.Type).names[name] = struct{}{}
		}
	}
}

func (l lapses) of(typ xds.TypeURL) *lapse {
	if l[typ] == nil {
		l[typ] = &lapse{names: make(map[string]struct{})}
	}
	return l[typ]
}

// take returns the newest interest and what lapsed since the last take. From
// here on lapses are recorded, until rest.
func (c *cell) take() (*xds.Interest, lapses) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lapsed := c.lapsed
	c.lapsed = make(lapses)
	return c.newest, lapsed
}

// rest says that nobody asks the origin for now: the next stream asks for
// everything anyway, and lapses would only pile up.
func (c *cell) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapsed = nil
}

// await returns once something is wanted, false if ctx ended first.
func (c *cell) await(ctx context.Context) bool {
	for !c.wanted() {
		select {
		case <-c.signal:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// wanted reports whether the newest interest wants anything.
func (c *cell) wanted() bool {
	c.mu.Lock()
	i := c.newest
	c.mu.Unlock()
	if i == nil {
		return false
	}
	for _, t := range i.Types {
		if !empty(t) {
			return true
		}
	}
	return false
}

func empty(t xds.TypeInterest) bool { return !t.Wildcard && t.Names.Len() == 0 }
