package fanout

import (
	"testing"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
)

// answer acknowledges the response before, or rejects it; names are those that a
// client of state of the world lists.
func (c *teller) answer(refused string, names ...string) {
	c.t.Helper()
	if c.delta != nil {
		names = nil
	}
	c.say(refused, names...)
}

// A client that was in step with a version in which nothing is for it has that version,
// whatever becomes of what comes after: be it on its way, rejected, or waiting.
func TestWhatDoesNotConcernAClientItHas(t *testing.T) {
	eachWithEndpoints(t, []string{"a", "b"}, func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller) {
		c.say("", "a")
		c.recv()
		c.answer("", "a")
		r.is(inspect.StateSynced)
		g.Publish(update(t, xds.EndpointType, "b=2"))
		g.Publish(update(t, xds.EndpointType, "b=33"))
		want := r.gen()
		has := func(when string) {
			t.Helper()
			if s := r.stands(); s.Has != want {
				t.Errorf("%s: has %d, not %d", when, s.Has, want)
			}
		}
		has("nothing came since")
		r.eventually(func() bool { // it was looked at
			for _, st := range r.srv.all() {
				st.mu.Lock()
				defer st.mu.Unlock()
				return st.order[0].SentSnapshot().Gen == want
			}
			return false
		})
		if at := r.srv.Clients()[0].Types[0]; at.Acked != g.Snaps[0].Version || at.Sent != at.Acked || at.Sends != 1 {
			t.Errorf("in step with the newest, and shown otherwise: %+v", at)
		}
		g.Settle(update(t, xds.EndpointType, "a=2"))
		has("something newer settles")
		g.Publish(update(t, xds.EndpointType, "a=33"))
		c.recv()
		has("something newer is on its way")
		c.answer("no", "a")
		r.is(inspect.StateNacked)
		has("something newer is refused")
		g.Publish(update(t, xds.EndpointType, "b=444"))
		has("of what came after that")
		g.Publish(update(t, xds.EndpointType, "a=444"))
		c.recv()
		has("something newer still is on its way")
		c.answer("", "a")
		r.is(inspect.StateSynced)
		want = r.gen()
		has("all is taken")
	})
}

// timed is how many streams' ACKs of the newest version were timed.
func (r *serverFixture) timed() (n uint32) {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	for _, in := range g.Snaps[0].Progress.Counts().AckTimes {
		n += in
	}
	return n
}

// A later subscription is not timed as propagation, whether its resource is old or came just before
// the next change of this client. A change that comes with it is.
func TestLateSubscriptionsAreNotTimed(t *testing.T) {
	eachWithEndpoints(t, []string{"a", "b", "c"}, func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller) {
		c.say("", "a")
		c.recv()
		c.answer("", "a")
		r.is(inspect.StateSynced)
		g.Publish(update(t, xds.EndpointType, "b=2")) // nothing to it
		acks := func(n uint64) {
			t.Helper()
			r.eventually(func() bool { return r.srv.Clients()[0].Types[0].Acks == n })
		}
		c.say("", "a", "b")
		c.recv()
		c.answer("", "a", "b")
		acks(2)
		if n := r.timed(); n != 0 {
			t.Errorf("%d were timed of what was asked for later", n)
		}
		g.Publish(update(t, xds.EndpointType, "b=22"))
		c.recv()
		c.answer("", "a", "b")
		acks(3)
		if n := r.timed(); n != 1 {
			t.Errorf("%d were timed of a change", n)
		}
	})
}

// A version that the origin spreads over several responses counts once.
func TestAVersionInSeveralResponsesCountsOnce(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newServerFixture(t, nil)
			g := r.groups.Group("edge")
			give := func(version string, specs ...string) {
				u := update(t, xds.EndpointType, specs...)
				u.Version = version
				g.Publish(u)
			}
			give("v1", "a", "b")
			c := r.teller(t, v)
			c.url = xds.EndpointType
			c.say("", "a", "b")
			c.recv()
			c.answer("", "a", "b")
			r.is(inspect.StateSynced)
			counts := func(want string) {
				t.Helper()
				if got := r.counts(); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			give("v2", "a=22")
			c.recv()
			c.answer("", "a", "b")
			r.is(inspect.StateSynced)
			counts("1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed")
			give("v2", "b=22")
			c.recv()
			c.answer("", "a", "b")
			r.is(inspect.StateSynced)
			counts("2 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed")
		})
	}
}
