package fanout

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

const delay = 5 * time.Second

var holds = adsOptions{removalDelay: delay}

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

// The removal waits for removal_delay, what is added does not.
func TestP36_RemovalWaits(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS y -x", "RDS r=y")
		a.want("CDS +y", "RDS r=y")
		a.pass(delay - 1)
		a.want()
		a.has("CDS", "x", "y", "z")
		if held := a.srv.Clients()[0].Types[0].Held; held != 1 {
			a.t.Errorf("the status tells of %d removals", held)
		}
		a.pass(1)
		a.want("CDS -x")
		a.pass(time.Hour)
		a.want()
		if held := a.srv.Clients()[0].Types[0].Held; held != 0 {
			a.t.Errorf("the status tells of %d removals at the end", held)
		}
	})
}

// So does that of a load assignment, where it is told at all (P31).
func TestP36_LoadAssignmentWaits(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("EDS -x", "CDS -x")
		a.want()
		a.pass(delay)
		if a.variant == xds.Delta {
			a.want("CDS -x", "EDS -x")
		} else {
			a.want("CDS -x")
		}
	})
	// Under the wildcard SotW tells it as well.
	inADS(t, "by the wildcard", holds, func(a *ads) {
		a.ask("LDS")
		a.ask("EDS", "*")
		u := update(a.t, xds.EndpointType, "x", "z")
		u.Wildcard = true
		a.g.publish(u)
		a.want("EDS +x +z")
		u = update(a.t, xds.EndpointType, "y", "-x")
		u.Wildcard = true
		a.g.publish(u)
		a.want("EDS +y")
		a.pass(delay)
		a.want("EDS -x")
	}, xds.SotW)
}

// After removal_delay the removal waits for the routes and listeners that came
// meanwhile to be answered, by an ACK or a NACK, and for as long again at most.
func TestP36_WaitsForRoutes(t *testing.T) {
	for _, c := range []struct {
		what   string
		answer func(*ads)
		at     time.Duration // the removal; from when it came
	}{
		{"an ACK", func(a *ads) { a.pass(6 * time.Second); a.want(); a.ack("RDS") }, 6 * time.Second},
		{"a NACK", func(a *ads) { a.pass(7 * time.Second); a.want(); a.nack("RDS") }, 7 * time.Second},
		{"an ACK in time", func(a *ads) { a.pass(time.Second); a.ack("RDS"); a.pass(delay - time.Second - 1); a.want(); a.pass(1) }, delay},
		{"nothing", func(a *ads) { a.pass(2*delay - 1); a.want(); a.pass(1) }, 2 * delay},
	} {
		eachADS(t, c.what, holds, func(a *ads) {
			envoy(a)
			a.withhold("RDS")
			start := time.Now()
			a.origin("CDS -x", "RDS r=z")
			a.want("RDS r=z")
			c.answer(a)
			if a.want("CDS -x"); time.Since(start) != c.at {
				t.Errorf("%s: after %v", c.what, time.Since(start))
			}
		})
	}
}

// It waits for listeners too, and not for what came later than removal_delay.
func TestP36_WaitsForNothingElse(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.ask("RTDS", "t") // is none of these
		a.withhold("RTDS")
		a.origin("RTDS t")
		a.want("RTDS +t")
		a.withhold("LDS")
		a.origin("CDS -x", "LDS l=z")
		a.want("LDS l=z")
		a.pass(delay)
		a.want()
		a.origin("LDS m=z")
		a.withhold("LDS")
		a.pass(time.Second)
		// What came after removal_delay goes out now, and is not waited for.
		a.answerFirst("LDS")
		a.want("CDS -x", "LDS +m")
	})
}

// A route that had to wait for an answer itself is one that came meanwhile.
func TestP36_WaitsForRoutesThatWait(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.withhold("RDS")
		a.origin("RDS r=z")
		a.want("RDS r=z")
		a.origin("CDS -x", "RDS r")
		a.want()
		a.pass(6 * time.Second)
		a.answerFirst("RDS")
		a.want("RDS r=")
		a.answerFirst("RDS")
		a.want("CDS -x")
	})
}

// What returns in time was never removed; with other content it is a change.
func TestP36_ReturnsInTime(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS -x", "EDS -x")
		a.pass(delay - 1)
		a.origin("CDS x")
		a.pass(time.Hour)
		a.origin("CDS x") // and is no change either
		if a.variant == xds.Delta {
			a.want("EDS -x")
			a.origin("EDS x")
			a.want("EDS +x") // P33: its removal was sent
		} else {
			a.want()
			a.origin("EDS x")
			a.want("EDS =x") // P31
		}
		a.origin("CDS -x")
		a.pass(delay - 1)
		a.origin("CDS x=2")
		a.want("CDS x=2", "EDS =x")
		a.pass(time.Hour)
		a.want()
		// Another removal is another wait.
		a.origin("CDS -x")
		a.pass(delay - 1)
		a.want()
		a.pass(1)
		a.want("CDS -x")
	})
}

// Each removal has its own time, however many follow each other.
func TestP36_EachItsOwnTime(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS a b c d")
		a.want("CDS +a +b +c +d")
		for _, n := range []string{"a", "b", "c", "d"} {
			a.origin("CDS -" + n)
			a.pass(2 * time.Second)
		}
		a.want("CDS -a", "CDS -b") // after 5 and 7 s of 8
		a.pass(time.Second)
		a.want("CDS -c")
		a.origin("CDS a")
		a.want("CDS +a")
		a.pass(2 * time.Second)
		a.want("CDS -d")
	})
	// Those that come at about the same time go together: none before its time,
	// none after twice as long.
	eachADS(t, "about the same time", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS a b")
		a.want("CDS +a +b")
		a.origin("CDS -a")
		a.pass(delay / grain)
		a.origin("CDS -b")
		a.pass(delay - 1)
		a.want()
		a.pass(1)
		a.want("CDS -a -b")
	})
}

// Only a stream that carries routes or listeners has a reason to wait, and only
// where it is told to.
func TestP36_WhereNothingIsHeld(t *testing.T) {
	eachADS(t, "no routes", holds, func(a *ads) {
		a.origin("CDS x z")
		a.ask("CDS")
		a.want("CDS +x +z")
		a.origin("CDS -x")
		a.want("CDS -x")
		a.ask("LDS") // from now on
		a.origin("LDS l")
		a.want("LDS +l")
		a.origin("CDS -z")
		a.want()
		a.pass(delay)
		a.want("CDS -z")
	})
	eachADS(t, "no delay", adsOptions{}, func(a *ads) {
		envoy(a)
		a.origin("RDS r=z", "CDS -x")
		a.want("RDS r=z", "CDS -x")
	})
	eachADS(t, "a stream of the type", adsOptions{removalDelay: delay, only: xds.ClusterType}, func(a *ads) {
		a.origin("CDS x z")
		a.ask("CDS")
		a.want("CDS +x +z")
		a.origin("CDS -x")
		a.want("CDS -x")
	})
	// Other types' removals do not wait.
	eachADS(t, "another type", holds, func(a *ads) {
		envoy(a)
		a.origin("LDS -l m")
		a.want("LDS +m -l")
	})
}

// Who asks is answered.
func TestP36_AnswersAreNotHeld(t *testing.T) {
	inADS(t, "given up beside the wildcard", holds, func(a *ads) { // P24
		envoy(a)
		a.ask("CDS", "x", "z")
		a.want("CDS =x =z", "EDS =x =z")
		a.origin("CDS -x")
		a.want()
		a.drop("CDS", "x")
		a.want("CDS -x")
		a.pass(time.Hour)
		a.want()
	}, xds.Delta)
	inADS(t, "asked for again", holds, func(a *ads) { // P25: it is held, and asked for
		envoy(a)
		a.origin("EDS -x")
		a.want()
		a.ask("EDS", "x", "never")
		a.want("EDS -x")
		a.origin("EDS -never")
		a.want("EDS -never")
		a.pass(time.Hour)
		a.want()
	}, xds.Delta)
	inADS(t, "asked for while unanswered", holds, func(a *ads) { // the same while a response is unanswered
		envoy(a)
		a.withhold("EDS")
		a.origin("EDS z=2")
		a.want("EDS z=2")
		a.origin("EDS -x")
		a.ask("EDS", "x")
		a.want("EDS -x")
		a.ack("EDS")
		a.pass(time.Hour)
		a.want()
	}, xds.Delta)
	inADS(t, "newly listed", holds, func(a *ads) { // P22: the full set, without it
		a.ask("LDS")
		a.ask("CDS", "x", "z")
		a.origin("LDS l", "CDS x z")
		a.want("LDS +l", "CDS +x +z")
		a.origin("CDS -x")
		a.want()
		a.drop("CDS", "x")
		a.has("CDS", "z") // it is held for nobody any more
		a.ask("CDS", "x")
		a.want("CDS")
		a.has("CDS", "z")
	}, xds.SotW)
}

// Nobody is told of the removal of what it gave up meanwhile.
func TestP36_GivenUpMeanwhile(t *testing.T) {
	inADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("EDS -x", "CDS -x")
		a.drop("EDS", "x")
		a.pass(delay)
		a.want("CDS -x")
		a.pass(time.Hour)
		a.want()
		a.ask("EDS", "x")
		a.want("EDS -x")
	}, xds.Delta)
}

// The time counts from when the removal came, also while an earlier response of
// the type is unanswered. It is then sent with what else waited (P19).
func TestP36_WhileClustersAreUnanswered(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.withhold("CDS")
		a.origin("CDS y")
		a.want("CDS +y")
		a.origin("CDS -x")
		a.pass(3 * time.Second)
		a.origin("CDS -y")
		a.pass(3 * time.Second)
		a.want() // 6 s, but the response with y is unanswered
		a.ack("CDS")
		a.want("CDS -x")
		a.pass(2*time.Second - 1)
		a.want()
		a.pass(1)
		a.want("CDS -y")
	})
	// Answered in time, it makes no difference.
	eachADS(t, "answered in time", holds, func(a *ads) {
		envoy(a)
		a.withhold("CDS")
		a.origin("CDS y", "CDS v", "CDS -x")
		a.want("CDS +y")
		a.pass(2 * time.Second)
		a.ack("CDS")
		a.want("CDS +v")
		a.pass(3*time.Second - 1)
		a.want()
		a.pass(1)
		a.want("CDS -x")
	})
}

// A wildcard that is subscribed again, as Envoy does with its first on-demand
// cluster, is answered with everything (P23), and loses no removal.
func TestP36_WildcardSubscribedAgain(t *testing.T) {
	inADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS -x")
		a.pass(time.Second)
		a.ask("CDS", "*", "od")
		a.has("CDS", "x", "z")
		a.want("CDS =x =z", "EDS =x =z")
		a.pass(delay - time.Second)
		a.want("CDS -x")
	}, xds.Delta)
	inADS(t, "", holds, func(a *ads) {
		a.ask("LDS")
		a.ask("CDS", "x", "z")
		a.origin("LDS l", "CDS x z")
		a.want("LDS +l", "CDS +x +z")
		a.origin("CDS -x")
		a.pass(time.Second)
		a.ask("CDS", "*")
		a.want() // before the wildcard is answered the rest would be taken for gone
		a.origin("CDS y z")
		a.want("CDS +y")
		a.pass(delay - time.Second - 1)
		a.has("CDS", "x", "y", "z")
		a.pass(1)
		a.want("CDS -x")
	}, xds.SotW)
}

// However the origin's updates lie, and whatever of them is merged, no route
// leads to a cluster that is not there: the client of the tests looks after each
// response.
func TestP35_AddRepointRemove(t *testing.T) {
	orders := [][]string{
		{"CDS y", "RDS r=y", "CDS -x"},
		{"CDS y", "CDS -x", "RDS r=y"},
		{"CDS y -x", "RDS r=y"},
		{"CDS -x", "CDS y", "RDS r=y"},
		{"EDS y -x", "CDS y -x", "RDS r=y"},
		{"RDS r=x", "CDS y -x", "LDS l", "RDS r=y"},
	}
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.ask("EDS", "y")
		for round := range 20 {
			for i, order := range orders {
				if round%2 == 0 {
					for _, spec := range order {
						a.together(spec) // as fast as can be
					}
				} else {
					a.origin(order...)
				}
				a.pass(time.Duration(round) * 300 * time.Millisecond)
				a.has("RDS", "r")
				a.pass(2 * delay)
				a.has("CDS", "y", "z")
				a.origin("CDS x", "EDS x", "RDS r=x") // and back
				a.pass(delay)
				a.origin("CDS -y")
				a.pass(delay)
				a.has("CDS", "x", "z")
				if len(a.broken) > 0 {
					a.t.Fatalf("order %d: %v", i, a.broken)
				}
			}
		}
	})
	// All in one State.
	eachADS(t, "in one State", holds, func(a *ads) {
		envoy(a)
		a.ask("EDS", "y")
		a.together("RDS r=y", "LDS l=y", "EDS y -x", "CDS y -x")
		a.want("CDS +y", "EDS +y", "LDS l=y", "RDS r=y")
		a.pass(delay)
		if a.variant == xds.Delta {
			a.want("CDS -x", "EDS -x")
		} else {
			a.want("CDS -x")
		}
	})
}

// A group wakes its members one by one: the first to be woken may not be the
// first to go.
func TestP35_WokenOneByOne(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.g.mu.Lock()
		all := a.g.members
		a.g.members = nil
		a.g.mu.Unlock()
		a.together("CDS y -x", "RDS r=y")
		for m := range all {
			if m.join.Type == xds.RouteType {
				m.join.Waker.Wake()
			}
		}
		a.want("CDS +y", "RDS r=y")
		a.g.mu.Lock()
		a.g.members = all
		a.g.mu.Unlock()
	})
}

// What is published while a worker looks at the types one by one is not sent out
// of order: a route that leads to a cluster which was looked at too early for it.
func TestP35_PublishedMeanwhile(t *testing.T) {
	for _, at := range []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.RouteType} {
		eachADS(t, xds.TypeOf(at).Short, holds, func(a *ads) {
			envoy(a)
			a.house.mu.Lock()
			var once sync.Once
			a.house.looked = func(url xds.TypeURL) {
				if url == at {
					once.Do(func() {
						a.together("CDS y -x")
						a.together("RDS r=y")
					})
				}
			}
			a.house.mu.Unlock()
			a.origin("RTDS -t") // somebody looks
			a.want("CDS +y", "RDS r=y")
			a.pass(delay)
			a.want("CDS -x")
			if len(a.broken) > 0 {
				t.Errorf("published as %s was looked at: %v", at, a.broken)
			}
		})
	}
}

// Clusters whose ACK is withheld hold back neither the clusters that a newer
// route needs nor their load assignments.
func TestP19_WarmingHoldsNothingBack(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.ask("EDS", "y", "v")
		a.withhold("CDS")
		a.origin("CDS y") // warms, for ever
		a.want("CDS +y")
		a.origin("CDS v -x")
		a.want()
		a.origin("RDS r=v")
		a.want("CDS +v", "RDS r=v")
		a.origin("EDS y v")
		a.want("EDS +v +y")
		a.pass(delay)
		a.want() // the removal waits for an answer now
		a.ack("CDS")
		a.want("CDS -x")
	})
	// It waits for ack_timeout at most, from the newest response on.
	eachADS(t, "ack_timeout", holds, func(a *ads) {
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

// Who goes on to subscribe and answers nothing is told of changes after
// ack_timeout all the same.
func TestP19_SubscribingDoesNotPutOff(t *testing.T) {
	inADS(t, "", holds, func(a *ads) {
		a.ask("EDS", "a")
		a.withhold("EDS")
		a.origin("EDS a")
		a.want("EDS +a")
		a.origin("EDS a=2")
		for i := range 3 * maxFlights {
			name := fmt.Sprint("n", i)
			a.origin("EDS " + name)
			a.ask("EDS", name)
			a.want("EDS +" + name)
			a.pass(ackTimeout / (4 * maxFlights))
		}
		a.pass(ackTimeout / 4)
		a.want("EDS a=2")
	}, xds.Delta)
}

// After a cluster its load assignment follows, whatever is unanswered.
func TestP37_FollowsWhateverIsUnanswered(t *testing.T) {
	eachADS(t, "", holds, func(a *ads) {
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
