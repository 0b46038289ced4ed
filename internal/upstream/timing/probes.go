package timing

import (
	"context"
	"sync/atomic"
)

// MaxProbes is how many keys at a time probe an origin that answered the last probe. The origin
// sends each of them all that the key wants.
const MaxProbes = 16

// Probes admits keys to probe an origin, first come, first served: one at a time until a probe
// succeeds, then MaxProbes (P56). Safe for concurrent use.
type Probes struct {
	places    chan struct{} // has an element for each probe
	next      chan struct{} // has an element while a key waits for a place, or probes alone
	succeeded atomic.Bool   // the last probe did
}

func NewProbes() *Probes {
	return &Probes{places: make(chan struct{}, MaxProbes), next: make(chan struct{}, 1)}
}

// Enter waits for a place, and returns how to leave it. It returns an error if ctx ended first.
func (t *Probes) Enter(ctx context.Context) (leave func(succeeded bool), err error) {
	select {
	case t.next <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		<-t.next
		return nil, context.Cause(ctx)
	}
	alone := !t.succeeded.Load()
	if !alone {
		<-t.next
	}
	return func(succeeded bool) {
		t.succeeded.Store(succeeded)
		<-t.places
		if alone {
			<-t.next
		}
	}, nil
}

// Running is how many keys probe now.
func (t *Probes) Running() int { return len(t.places) }
