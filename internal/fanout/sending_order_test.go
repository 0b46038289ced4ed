package fanout

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
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

// resume is ask of a client that brings state: a version. In delta it is that of the names.
func (a *ads) resume(short string, names ...string) {
	a.t.Helper()
	url := adsURL(short)
	a.mu.Lock()
	a.types[url] = &adsType{holds: map[string]string{}, wild: len(names) == 0, names: names}
	a.mu.Unlock()
	if a.variant == xds.SotW {
		a.say(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(url), ResourceNames: names, VersionInfo: "before"})
	} else {
		versions := make(map[string]string)
		for _, n := range names {
			versions[n] = "before"
		}
		a.say(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(url), ResourceNamesSubscribe: names, InitialResourceVersions: versions})
	}
	a.pass(0)
}

// part publishes clusters as a part of the answer to the wildcard.
func (a *ads) part(names ...string) {
	a.t.Helper()
	u := update(a.t, xds.ClusterType, names...)
	u.Partial = true
	a.g.Publish(u)
	a.pass(0)
}

type deafWaker struct{}

func (deafWaker) Wake() {}

// waitsElsewhere is another client of the key, whose clusters wait.
func (a *ads) waitsElsewhere(wait time.Duration) subscriber.Subscriber {
	a.t.Helper()
	n := xdstest.Must(a.srv.nodes.Intern([]byte("\x12\x04edge")))(a.t) // cluster
	m := xdstest.Must(a.groups.Join(subscriber.Info{Node: n}).Subscribe(xds.ClusterType, deafWaker{}))(a.t)
	m.SetRoutesWait(wait)
	return m
}

// A client that brings state gets its listeners and routes after its clusters, which wait for the
// rest of the answer to the wildcard.
func TestP67_RoutesComeAfterClustersThatWait(t *testing.T) {
	for _, order := range [][]string{{"CDS", "LDS", "RDS"}, {"RDS", "LDS", "CDS"}} {
		inADS(t, order[0]+" first", adsOptions{}, func(a *ads) {
			names := map[string][]string{"RDS": {"r"}}
			for _, short := range order {
				a.resume(short, names[short]...)
			}
			a.part("x")
			a.origin("LDS l", "RDS r=x")
			a.pass(14 * time.Second)
			a.want()
			a.origin("CDS x y")
			a.want("CDS +x +y", "LDS +l", "RDS +r")
			a.part("z")
			a.origin("RDS r=z")
			a.want("CDS +z", "RDS r=z")
		}, xds.SotW)
	}
}

// Listeners and routes wait for at most 15 s after the first request for their type. Clusters go on
// waiting.
func TestP67_RoutesWaitForTheWildcardFor15s(t *testing.T) {
	inADS(t, "", adsOptions{}, func(a *ads) {
		a.resume("CDS")
		a.resume("RDS", "r")
		a.part("x")
		a.origin("RDS r=x")
		a.pass(time.Second)
		a.resume("LDS")
		a.origin("LDS l")
		a.pass(14*time.Second - time.Millisecond)
		a.want()
		a.pass(time.Millisecond)
		a.want("RDS +r")
		a.pass(time.Second)
		a.want("LDS +l")
		a.pass(time.Hour)
		a.want()
	}, xds.SotW)
}

// Clusters that are requested by name hold up routes for at most 5 s.
func TestP67_RoutesWaitForNamedClustersFor5s(t *testing.T) {
	inADS(t, "", adsOptions{}, func(a *ads) {
		a.resume("CDS", "x", "y")
		a.resume("RDS", "r")
		a.origin("RDS r=x")
		a.pass(5*time.Second - time.Millisecond)
		a.want()
		a.pass(time.Millisecond)
		a.want("RDS +r")
		a.origin("CDS x")
		a.want()
		a.origin("CDS y")
		a.want("CDS +x +y")
	}, xds.SotW)
}

// Clusters that wait for another client of the key hold up routes of clients that bring state, in
// both variants, and nothing else.
func TestP67_RoutesWaitForClustersOfTheKey(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		m := a.waitsElsewhere(snapshot.WildcardWait)
		a.origin("CDS x", "LDS l", "RDS r=x", "EDS x")
		a.resume("RDS", "r")
		a.resume("EDS", "x")
		a.ask("LDS") // without state
		a.pass(10 * time.Second)
		a.want("EDS +x", "LDS +l")
		m.SetRoutesWait(0)
		a.want("RDS +r")
	})
}

// A stream that is older than the wait is not held up: only the first 15 s after a type's first
// request count.
func TestP67_LaterRoutesDoNotWait(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		a.origin("RDS r=x")
		a.resume("RDS", "r")
		a.want("RDS +r")
		m := a.waitsElsewhere(snapshot.WildcardWait)
		a.origin("RDS r=y")
		a.pass(10 * time.Second)
		a.want()
		a.pass(5 * time.Second)
		a.want("RDS r=y")
		a.origin("RDS r=z")
		a.want("RDS r=z")
		m.SetRoutesWait(0)
	})
}

// Only clients that bring state look whether clusters wait.
func TestP67_ClientsWithoutStateDoNotLookForClusters(t *testing.T) {
	eachADS(t, "", adsOptions{}, func(a *ads) {
		asked := func() (n int) {
			a.g.Mu.Lock()
			defer a.g.Mu.Unlock()
			for m := range a.g.Subscribers {
				n += m.AskedRoutesWait
			}
			return n
		}
		a.origin("CDS x", "LDS l", "RDS r=x")
		a.ask("CDS")
		a.ask("LDS")
		a.ask("RDS", "r")
		a.want("CDS +x", "LDS +l", "RDS +r")
		if n := asked(); n > 0 {
			t.Errorf("it looked %d times", n)
		}
		a.resume("SRDS", "s")
		a.pass(0)
		if asked() == 0 {
			t.Error("a type with state did not look")
		}
	})
}
