package overview

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// MaxPages bounds the open pages.
const MaxPages = 32

const (
	// every is the least time between two events.
	every = time.Second
	// share is the pause after an event, as a multiple of its computation time. It bounds the cost
	// to a fiftieth of a core.
	share = 50
	// longest bounds the pause.
	longest = 30 * time.Second
)

// ErrEnded is returned when the relay ends.
var ErrEnded = errors.New("overview: ended")

// Event is an encoded Overview. Two have the same Data if nothing changed.
type Event struct {
	Data []byte
	Made time.Time
	cost time.Duration
}

// Hub has the newest event for all open pages.
type Hub struct {
	compute func(context.Context) ([]byte, time.Duration, error)

	newest    atomic.Pointer[Event]
	computing chan struct{} // held by the caller that waits for the next event or computes it
	pages     chan struct{} // one element for each open page
	ended     chan struct{}
	end       sync.Once
}

// NewHub makes a Hub. compute returns the data of an event and the time that it took, without
// waiting. It fails only if its context has ended.
func NewHub(compute func(context.Context) ([]byte, time.Duration, error)) *Hub {
	return &Hub{
		compute:   compute,
		computing: make(chan struct{}, 1),
		pages:     make(chan struct{}, MaxPages),
		ended:     make(chan struct{}),
	}
}

// Open counts a new page; false: there are too many. Otherwise call Close later.
func (h *Hub) Open() bool {
	select {
	case h.pages <- struct{}{}:
		return true
	default:
		return false
	}
}

// Close ends a page of Open.
func (h *Hub) Close() { <-h.pages }

// End ends all present and later calls of Next.
func (h *Hub) End() { h.end.Do(func() { close(h.ended) }) }

// Next returns the event after seen, which is nil at first: at once if one was made meanwhile,
// otherwise when the next is due.
func (h *Hub) Next(ctx context.Context, seen *Event) (*Event, error) {
	if e := h.newest.Load(); e != seen && e.young() {
		return e, nil
	}
	select {
	case h.computing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.ended:
		return nil, ErrEnded
	}
	defer func() { <-h.computing }()
	e := h.newest.Load()
	if e != seen && e.young() { // another caller made it meanwhile
		return e, nil
	}
	if err := h.wait(ctx, e); err != nil {
		return nil, err
	}
	data, cost, err := h.compute(ctx)
	if err != nil {
		return nil, err
	}
	next := &Event{Data: data, Made: time.Now(), cost: cost}
	h.newest.Store(next)
	return next, nil
}

// wait waits until the event after e is due. The caller holds computing.
func (h *Hub) wait(ctx context.Context, e *Event) error {
	select {
	case <-h.ended:
		return ErrEnded
	default:
	}
	if e == nil {
		return nil
	}
	select {
	case <-time.After(time.Until(e.Made.Add(e.rest()))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return ErrEnded
	}
}

// rest is the pause after e.
func (e *Event) rest() time.Duration { return min(max(every, share*e.cost), longest) }

// young reports whether e is still the newest possible.
func (e *Event) young() bool { return e != nil && time.Since(e.Made) < e.rest() }
