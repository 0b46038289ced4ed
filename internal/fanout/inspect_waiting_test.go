package fanout

import (
	"testing"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A client waits from when it subscribed to a name that the origin does not answer. Other changes
// of its subscription do not begin the wait again, and an answer ends it.
func TestP57_SinceWhenAClientWaits(t *testing.T) {
	eachWithEndpoints(t, []string{"a", "b"}, func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller) {
		var names []string
		add := func(name string) {
			if names = append(names, name); v == xds.Delta {
				c.say("", name)
			} else {
				c.say("", names...)
			}
		}
		ack := func() {
			if c.recv(); v == xds.Delta {
				c.say("")
			} else {
				c.say("", names...)
			}
		}
		add("a")
		ack()
		r.is(inspect.StateSynced)
		if at := r.stands(); !at.WaitingSince.IsZero() {
			t.Errorf("it waits: %+v", at)
		}
		add("pending")
		since := r.is(inspect.StateNotSent).Since
		if at := r.stands(); !at.WaitingSince.Equal(since) || time.Since(since) > time.Minute {
			t.Errorf("%+v, want since %v", at, since)
		}
		add("b")
		ack()
		r.eventually(func() bool {
			all := r.srv.Clients()
			return all[0].Types[0].Names == 3 && all[0].Types[0].State == inspect.StateNotSent
		})
		if at := r.stands(); !at.WaitingSince.Equal(since) {
			t.Errorf("after another change: %+v, want since %v", at, since)
		}
		g.Publish(update(t, xds.EndpointType, "a", "b", "pending"))
		ack()
		r.is(inspect.StateSynced)
		if at := r.stands(); !at.WaitingSince.IsZero() {
			t.Errorf("after the answer: %+v", at)
		}
	})
}

// A client that polls waits from when it began.
func TestP57_SinceWhenAPollerWaits(t *testing.T) {
	r := newREST(t, nil)
	r.Begin(xdstest.Context(t), r.HTTP(resttest.Protocols[0]), xds.EndpointType, "", "pending")
	r.waiting(1)
	if at := r.stands(); at.State != inspect.StateNotSent || at.WaitingSince.IsZero() || !at.WaitingSince.Equal(at.Since) {
		t.Errorf("%+v", at)
	}
}
