package admin

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// turn has one at a time do what costs by what the relay holds, and bounds the time
// that is spent on it: whoever asks without end gets as much as is left when clients
// have theirs. It is safe for concurrent use.
type turn struct {
	room chan struct{}
	left *rate.Limiter // microseconds of work
}

// newTurn makes one of a share of the time, and of as much work at once.
func newTurn(share float64, atOnce time.Duration) *turn {
	return &turn{make(chan struct{}, 1), rate.NewLimiter(rate.Limit(share*1e6), int(atOnce.Microseconds()))}
}

// take waits for the turn, and reports false if ctx ends before.
func (t *turn) take(ctx context.Context) (give func(), ok bool) {
	if !enter(ctx, t.room) {
		return nil, false
	}
	return t.pay(ctx)
}

// pay is take for who is in the room already; where it fails, the room is given back.
func (t *turn) pay(ctx context.Context) (give func(), ok bool) {
	// What was taken before is paid for first; a deadline that is too near is as good
	// as over.
	if t.left.WaitN(ctx, 1) != nil {
		<-t.room
		return nil, false
	}
	began := time.Now()
	return func() {
		t.left.ReserveN(time.Now(), min(int(time.Since(began).Microseconds()), t.left.Burst()))
		<-t.room
	}, true
}
