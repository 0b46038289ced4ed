package timing

import (
	"context"
	"sync/atomic"
)

// MaxProbes is how many keys at a time probe an origin that answered the last probe. The origin
// sends each of them all that the key wants.
const MaxProbes = 16

// MaxMemberProbes is the same for a member of the cluster. A member sends little of what the key holds
// already (P61), and answers a key that is new to it only after a second.
const MaxMemberProbes = 64

// Probes admits keys to probe an origin, first come, first served: one at a time until a probe
// succeeds, then MaxProbes, or MaxMemberProbes (P56). Safe for concurrent use.
type Probes struct {
	places    chan struct{} // has an element for each probe
	next      chan struct{} // has an element while a key waits for a place, or probes alone
	succeeded atomic.Bool   // the last probe did
}

// NewProbes is for an origin, or for a member.
func NewProbes(member bool) *Probes {
	most := MaxProbes
	if member {
		most = MaxMemberProbes
	}
	return &Probes{places: make(chan struct{}, most), next: make(chan struct{}, 1)}
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
