package fanout

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"xdsrelay/internal/xds"
)

// envoy is a client whose route r leads to the cluster x.
func envoy(a *ads) {
	a.t.Helper()
	a.origin("CDS x z", "EDS x z", "LDS l", "RDS r=x")
	a.ask("CDS")
	a.ask("EDS", "x", "z")
	a.ask("LDS")
	a.ask("RDS", "r")
	a.want("CDS +x +z", "EDS +x +z", "LDS +l", "RDS +r")
}

// The group learns what a client took while it rejected nothing (P36).
func TestP36_GroupLearnsOfACKs(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		a.origin("CDS x", "LDS l")
		a.ask("CDS")
		a.ask("LDS")
		a.g.Mu.Lock()
		defer a.g.Mu.Unlock()
		for m := range a.g.Subscribers {
			if want := []uint64{1}; !slices.Equal(m.AckedGens, want) {
				t.Errorf("%s: acknowledged generations %v, want %v", m.Join.Type, m.AckedGens, want)
			}
		}
	})
}

// A group wakes its subscribers one by one: the first to be woken may not be the
// first to go.
func TestP35_WokenOneByOne(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		envoy(a)
		a.g.Mu.Lock()
		all := a.g.Subscribers
		a.g.Subscribers = nil
		a.g.Mu.Unlock()
		a.together("CDS y", "RDS r=y")
		for m := range all {
			if m.Join.Type == xds.RouteType {
				m.Join.Waker.Wake()
			}
		}
		a.want("CDS +y", "RDS r=y")
		a.g.Mu.Lock()
		a.g.Subscribers = all
		a.g.Mu.Unlock()
	})
}

// What is published while a worker looks at the types one by one is sent in order. A route does not
// precede the cluster that it leads to.
func TestP35_PublishedMeanwhile(t *testing.T) {
	for _, at := range []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.RouteType} {
		eachADS(t, xds.TypeOf(at).Short, adsOptions{}, func(a *ads) {
			envoy(a)
			a.groups.Mu.Lock()
			var once sync.Once
			a.groups.Looked = func(url xds.TypeURL) {
				if url == at {
					once.Do(func() {
						a.together("CDS y")
						a.together("RDS r=y")
					})
				}
			}
			a.groups.Mu.Unlock()
			a.origin("RTDS -t") // somebody looks
			a.want("CDS +y", "RDS r=y")
			if len(a.broken) > 0 {
				t.Errorf("published as %s was looked at: %v", at, a.broken)
			}
		})
	}
}

// Clusters whose ACK is withheld hold back neither the clusters that a newer
// route needs nor their load assignments.
func TestP19_WarmingHoldsNothingBack(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		envoy(a)
		a.ask("EDS", "y", "v")
		a.withhold("CDS")
		a.origin("CDS y") // warms, for ever
		a.want("CDS +y")
		a.origin("CDS v")
		a.want()
		a.origin("RDS r=v")
		a.want("CDS +v", "RDS r=v")
		a.origin("EDS y v")
		a.want("EDS +v +y")
		a.origin("CDS -x")
		a.want() // it waits for an answer
		a.ack("CDS")
		a.want("CDS -x")
	})
	// It waits for ack_timeout at most, from the newest response on.
	eachADS(t, "ack_timeout", adsOptions{}, func(a *ads) {
		envoy(a)
		a.withhold("CDS")
		a.origin("CDS y", "CDS -x")
		a.want("CDS +y")
		a.pass(ackTimeout - 1)
		a.want()
		a.pass(1)
		a.want("CDS -x")
	})
}

// A client that keeps subscribing and never answers is sent changes after ack_timeout all the same.
func TestP19_SubscribingDoesNotPutOff(t *testing.T) {
	inADS(t, "", adsOptions{}, func(a *ads) {
		a.ask("EDS", "a")
		a.withhold("EDS")
		a.origin("EDS a")
		a.want("EDS +a")
		a.origin("EDS a=2")
		const most = 32 // pending ACKs, as many as a session remembers
		for i := range 3 * most {
			name := fmt.Sprint("n", i)
			a.origin("EDS " + name)
			a.ask("EDS", name)
			a.want("EDS +" + name)
			a.pass(ackTimeout / (4 * most))
		}
		a.pass(ackTimeout / 4)
		a.want("EDS a=2")
	}, xds.Delta)
}

// After a cluster its load assignment follows, whatever ACK is pending.
func TestP37_FollowerDoesNotWaitForACKs(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		envoy(a)
		a.withhold("CDS")
		a.origin("CDS x=2")
		a.want("CDS x=2", "EDS =x")
		a.ack("CDS")
		a.withhold("EDS")
		a.origin("EDS z=2", "CDS x=3")
		a.want("EDS z=2", "CDS x=3")
		a.ack("EDS")
		a.want("EDS =x")
	})
}
