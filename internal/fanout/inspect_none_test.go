package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
)

// shown is what the inspector says of the only client's only type: its state, the generation that
// it has, its names, and what it has not acknowledged.
func (r *serverFixture) shown() string {
	r.t.Helper()
	all := r.srv.Clients()
	if len(all) != 1 || len(all[0].Types) != 1 {
		return fmt.Sprint(len(all), " clients")
	}
	out := all[0].Types[0].State
	if s := r.stands(); s.State != out {
		out += " or " + s.State
	}
	has := "nothing"
	if s := r.stands(); s.Has > 0 {
		has = fmt.Sprintf("%d behind", r.gen()-s.Has)
	}
	out += ", " + has + ";"
	for _, i := range r.srv.ClientConfigs() {
		for _, typ := range i.Types() {
			for n := range typ.Resources {
				out += fmt.Sprintf(" %s:%s/%s", n.Name, statusNames[n.NameStatus], n.State)
			}
		}
	}
	for _, u := range r.unacknowledged("n") {
		out += fmt.Sprintf("; %s unsent %v awaits %v", u.State, u.Unsent, u.Unanswered)
	}
	return out
}

func (r *serverFixture) wantShown(want string) {
	r.t.Helper()
	var got string
	for range 500 {
		if got = r.shown(); got == want {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	r.t.Fatalf("%s, want %s", got, want)
}

func (r *serverFixture) unacknowledged(node string) (out []inspect.Unacknowledged) {
	for _, of := range r.srv.Unacknowledged(node, 0) {
		out = append(out, of...)
	}
	return out
}

// A name that the origin does not have keeps no client from being in step, and nor
// does one of which it has said nothing from having a version; status, versions,
// resources and what is not taken say the same.
func TestP31_NamesThatNobodyHas(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newServerFixture(t, nil)
			g := r.groups.Group("edge")
			c := r.teller(t, v)
			c.url = xds.EndpointType
			c.say("", "x", "y")
			r.wantShown("NOT SENT, nothing; x:requested/NOT SENT y:requested/NOT SENT; NOT SENT unsent false awaits [x y]")
			g.Publish(update(t, xds.EndpointType, "other"))
			r.wantShown("NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; NOT SENT unsent false awaits [x y]")
			take := func() {
				if v == xds.Delta { // which has a way to say it
					c.recv()
					c.answer("")
				}
			}
			g.Publish(update(t, xds.EndpointType, "-x"))
			take()
			r.wantShown("NOT SENT, 0 behind; x:absent/SYNCED y:requested/NOT SENT; NOT SENT unsent false awaits [y]")
			g.Publish(update(t, xds.EndpointType, "-y"))
			take()
			r.wantShown("SYNCED, 0 behind; x:absent/SYNCED y:absent/SYNCED")
			g.Publish(update(t, xds.EndpointType, "x"))
			c.recv()
			c.answer("", "x", "y")
			r.wantShown("SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED")
		})
	}
}

// A client that has what it asked for first, and then asks for a name that the origin has not
// answered, is NOT SENT: it waits for that name. It still has its versions, and what it
// acknowledged is still shown.
func TestP31_ClientAsksForMore(t *testing.T) {
	eachWithEndpoints(t, []string{"x"}, func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller) {
		c.say("", "x")
		c.recv()
		c.answer("", "x")
		r.wantShown("SYNCED, 0 behind; x:acked/SYNCED")
		took, before := r.srv.Clients()[0].Types[0].Acked, time.Now()
		switch v {
		case xds.Delta:
			c.say("", "y")
		default:
			c.answer("", "x", "y")
		}
		r.wantShown("NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; NOT SENT unsent false awaits [y]")
		if at := r.srv.Clients()[0].Types[0]; at.Acked != took || took == "" || at.Since.Before(before) {
			t.Errorf("%+v, took %q before", at, took)
		}
		g.Publish(update(t, xds.EndpointType, "x=22"))
		r.wantShown("STALE, 1 behind; x:unknown/STALE y:requested/NOT SENT; STALE unsent false awaits []")
		c.recv()
		c.answer("", "x", "y")
		r.wantShown("NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; NOT SENT unsent false awaits [y]")
		g.Publish(update(t, xds.EndpointType, "y"))
		c.recv()
		c.answer("", "x", "y")
		r.wantShown("SYNCED, 0 behind; x:acked/SYNCED y:acked/SYNCED")
	})
}

// The same holds for a poller.
func TestP31_PollerAsksForMore(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "x"))
	c := r.HTTP(resttest.Protocols[0])
	version := r.Response(r.Ask(c, xds.EndpointType, "", "x", "y")).VersionInfo
	r.Ask(c, xds.EndpointType, version, "x", "y")
	r.wantShown("NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; NOT SENT unsent false awaits [y]")
	g.Publish(update(t, xds.EndpointType, "-y"))
	r.wantShown("SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED")
}

// An answer of a full-state type also says which names do not exist. A poll that awaits another
// name does not change that.
func TestP31_PollerAsksForMoreOfAFullState(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	u := update(t, xds.ClusterType, "a", "-b")
	u.Wildcard = false
	r.groups.Group("edge").Publish(u)
	c := r.HTTP(resttest.Protocols[0])
	version := r.Response(r.Ask(c, xds.ClusterType, "", "a", "b", "c")).VersionInfo
	r.Ask(c, xds.ClusterType, version, "a", "b", "c")
	r.wantShown("NOT SENT, 0 behind; a:acked/SYNCED b:absent/SYNCED c:requested/NOT SENT; NOT SENT unsent false awaits [c]")
}

// A poller is in step when the names that it asks for do not exist.
func TestP31_PolledNamesThatDoNotExist(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "other"))
	c := r.HTTP(resttest.Protocols[0])
	r.Ask(c, xds.EndpointType, "", "x", "y")
	r.wantShown("NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; NOT SENT unsent false awaits [x y]")
	g.Publish(update(t, xds.EndpointType, "-x", "-y"))
	r.wantShown("SYNCED, 0 behind; x:absent/SYNCED y:absent/SYNCED")
	g.Publish(update(t, xds.EndpointType, "x"))
	version := r.Response(r.Ask(c, xds.EndpointType, "", "x", "y")).VersionInfo
	r.wantShown("STALE, nothing; x:requested/STALE y:absent/SYNCED; STALE unsent false awaits []")
	r.Ask(c, xds.EndpointType, version, "x", "y")
	r.wantShown("SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED")
	g.Publish(update(t, xds.EndpointType, "x=22"))
	r.wantShown("STALE, 1 behind; x:unknown/STALE y:absent/SYNCED; STALE unsent true awaits []")
}

// P71: a client that polls with the current version has it. Another replica may have given it, or
// this one before a restart.
func TestP71_CurrentVersionIsHad(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "a"))
	c := r.HTTP(resttest.Protocols[0])
	version := r.Response(r.Ask(c, xds.EndpointType, "", "a")).VersionInfo
	r.wantShown("STALE, nothing; a:requested/STALE; STALE unsent false awaits []")
	r.srv.forgetPollers() // as a restart does
	r.Ask(c, xds.EndpointType, version, "a")
	r.wantShown("SYNCED, 0 behind; a:acked/SYNCED")
	if at := r.srv.Clients()[0].Types[0]; at.Sent != version || at.Acked != version || at.Sends != 0 {
		t.Errorf("%+v", at)
	}
	// A poll without a version is of a client that has nothing: another one, or after its restart.
	r.Response(r.Ask(c, xds.EndpointType, "", "a"))
	states := make(map[string]int)
	for _, c := range r.srv.Clients() {
		states[c.Types[0].State]++
	}
	if states[inspect.StateSynced] != 1 || states[inspect.StateStale] != 1 {
		t.Errorf("%v", states)
	}
}

// P71: a client that was given something newer, and has not polled since, runs that or the older
// version. It has no version that counts as older.
func TestP71_NewerAnswerIsNotAStepBack(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "a"))
	c := r.HTTP(resttest.Protocols[0])
	a := r.Response(r.Ask(c, xds.EndpointType, "", "a")).VersionInfo
	r.Ask(c, xds.EndpointType, a, "a")
	r.wantShown("SYNCED, 0 behind; a:acked/SYNCED")
	g.Publish(update(t, xds.EndpointType, "a=22"))
	first := r.gen() - 1
	b := r.Response(r.Ask(c, xds.EndpointType, a, "a")).VersionInfo
	has := func(when string, want uint64) {
		t.Helper()
		if s := r.stands(); s.Has != want {
			t.Errorf("%s: %s, has %d, not %d", when, s.State, s.Has, want)
		}
	}
	has("the newer one was given", first)
	g.Publish(update(t, xds.EndpointType, "a"))
	has("it was taken back", first)
	if again := r.Response(r.Ask(c, xds.EndpointType, b, "a")).VersionInfo; again != a {
		t.Fatalf("%s is given, not %s", again, a)
	}
	has("the newer one was taken, and what takes it back given", first+1)
	g.Publish(update(t, xds.EndpointType, "-a"))
	has("there is nothing for it, and it was given something", first+1)
	r.Ask(c, xds.EndpointType, a, "a")
	has("it took that", r.gen())
}

// P71: a client that takes each version as it comes has the versions before the newest, even if
// there is always a newer one.
func TestP71_PollerOfABusyKey(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "a"))
	c := r.HTTP(resttest.Protocols[0])
	version := r.Response(r.Ask(c, xds.EndpointType, "", "a")).VersionInfo
	for n := range 3 {
		g.Publish(update(t, xds.EndpointType, "a="+strings.Repeat("7", n+2)))
		version = r.Response(r.Ask(c, xds.EndpointType, version, "a")).VersionInfo
		if s := r.stands(); s.Has != r.gen()-1 || s.State != inspect.StateStale {
			t.Errorf("%s, has %d of %d", s.State, s.Has, r.gen())
		}
	}
	<-r.Nack(c, xds.EndpointType, version, "a")
	if s := r.stands(); s.Has != r.gen()-1 || s.Nack == nil || s.Nack.Gen != r.gen() || !s.Final {
		t.Errorf("%+v of %d", s, r.gen())
	}
}

// P27: a client that brings names of which the relay knows nothing was sent nothing, and is not in
// step.
func TestP27_UnknownNamesAreNotSynced(t *testing.T) {
	for _, brings := range []bool{false, true} {
		r := newServerFixture(t, nil)
		g := r.groups.Group("edge")
		g.Publish(update(t, xds.RouteType, "other"))
		c := r.delta(nil)
		req := &discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(xds.RouteType), ResourceNamesSubscribe: []string{"x", "y"}}
		if brings {
			req.InitialResourceVersions = map[string]string{"x": "1234"}
		}
		c.must(req)
		r.eventually(func() bool { // it was looked at
			for _, st := range r.srv.all() {
				st.mu.Lock()
				defer st.mu.Unlock()
				return len(st.order) == 1 && st.order[0].SentSnapshot() != nil
			}
			return false
		})
		r.wantShown("NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; NOT SENT unsent false awaits [x y]")
	}
}
