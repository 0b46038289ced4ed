package overview

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// MaxPages is how many may be open at a time.
const MaxPages = 32

const (
	// every is the least time between two events.
	every = time.Second
	// share is how many times as long as computing took the next one is waited for:
	// at most a fiftieth of a core goes into it.
	share = 50
	// longest is how long is waited at most for all that.
	longest = 30 * time.Second
)

// ErrEnded is that the relay ends.
var ErrEnded = errors.New("overview: ended")

// Event is what pages are told. Two are the same if nothing changed.
type Event struct {
	Data []byte
	Made time.Time
	cost time.Duration
}

// Hub has the newest event for all open pages.
type Hub struct {
	compute func(context.Context) ([]byte, time.Duration, error)

	now   atomic.Pointer[Event]
	turn  chan struct{} // for the one that waits for the next event, or computes it
	pages chan struct{} // one for each open page
	ended chan struct{}
	end   sync.Once
}

// NewHub makes a Hub; compute makes the data of an event and says what that
// cost, without what it waited; it fails only if its context has ended.
func NewHub(compute func(context.Context) ([]byte, time.Duration, error)) *Hub {
	return &Hub{
		compute: compute,
		turn:    make(chan struct{}, 1),
		pages:   make(chan struct{}, MaxPages),
		ended:   make(chan struct{}),
	}
}

// Open is told that a page opens; false: there are too many. Close has to follow.
func (h *Hub) Open() bool {
	select {
	case h.pages <- struct{}{}:
		return true
	default:
		return false
	}
}

// Close is told that a page that was opened is closed.
func (h *Hub) Close() { <-h.pages }

// End ends all that waits, now and later.
func (h *Hub) End() { h.end.Do(func() { close(h.ended) }) }

// Next returns the event after seen, which is nil at first: one that was made
// meanwhile at once, or else the next, when its time has come.
func (h *Hub) Next(ctx context.Context, seen *Event) (*Event, error) {
	if e := h.now.Load(); e != seen && e.young() {
		return e, nil
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.ended:
		return nil, ErrEnded
	}
	defer func() { <-h.turn }()
	e := h.now.Load()
	if e != seen && e.young() { // who had the turn before made it
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
	h.now.Store(next)
	return next, nil
}

// wait waits until it is time for the event after e. Who waits has the turn.
func (h *Hub) wait(ctx context.Context, e *Event) error {
	select {
	case <-h.ended:
		return ErrEnded
	default:
	}
	if e == nil {
		return nil
	}
	t := time.NewTimer(time.Until(e.Made.Add(e.rest())))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return ErrEnded
	}
}

// rest is how long nothing is computed after e.
func (e *Event) rest() time.Duration { return min(max(every, share*e.cost), longest) }

// young reports whether e is the newest that there may be.
func (e *Event) young() bool { return e != nil && time.Since(e.Made) < e.rest() }
