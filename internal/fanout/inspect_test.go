package fanout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

var statusNames = map[inspect.NameStatus]string{inspect.StatusRequested: "requested", inspect.StatusDoesNotExist: "absent", inspect.StatusAcked: "acked", inspect.StatusNacked: "nacked", inspect.StatusReceivedError: "error", inspect.StatusUnknown: "unknown"}

// Clients are counted by the state of each type.
func TestClientsAreCountedByState(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	cc := r.dial()
	var nonces []string
	for range 4 {
		c := r.delta(cc)
		c.ask(xds.ClusterType)
		m := xdstest.Must(c.Recv())(t)
		nonces = append(nonces, m.Nonce)
		switch len(nonces) {
		case 1, 2:
			c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
		case 3:
			c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}})
		}
	}
	r.delta(cc).ask(xds.EndpointType, "e") // of which nothing is known
	want := map[string]float64{"synced": 2, "nacked": 1, "stale": 1, "not_sent": 0}
	r.eventually(func() bool {
		all := r.srv.Count()
		r.metrics.SetClientStates(all)
		for state, n := range want {
			if gauge(t, r.metrics, "xdsrelay_downstream_types", "CDS", state) != n {
				return false
			}
		}
		return gauge(t, r.metrics, "xdsrelay_downstream_types", "EDS", "not_sent") == 1
	})
	r.grpc.Stop()
	r.eventually(func() bool { return len(r.srv.all()) == 0 })
	r.metrics.SetClientStates(r.srv.Count())
	for state := range want {
		if n := gauge(t, r.metrics, "xdsrelay_downstream_types", "CDS", state); n != 0 {
			t.Errorf("%v clients are %s that are gone", n, state)
		}
	}
}

// Pollers are counted as well.
func TestPollersAreCountedByState(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "a", "b"))
	c := r.HTTP(resttest.Protocols[0])
	r.Begin(xdstest.Context(t), c, xds.EndpointType, r.Response(r.Ask(c, xds.EndpointType, "", "a")).VersionInfo, "a")
	b := r.Response(r.Ask(c, xds.EndpointType, "", "b")).VersionInfo
	r.Begin(xdstest.Context(t), c, xds.EndpointType, "", "unknown")
	r.waiting(2)
	counts := func(want map[string]float64) {
		t.Helper()
		r.eventually(func() bool {
			r.metrics.SetClientStates(r.srv.Count())
			for state, n := range want {
				if gauge(t, r.metrics, "xdsrelay_downstream_types", "EDS", state) != n {
					return false
				}
			}
			return true
		})
	}
	counts(map[string]float64{"synced": 1, "stale": 1, "not_sent": 1, "nacked": 0})
	r.Nack(c, xds.EndpointType, b, "b")
	r.waiting(3)
	counts(map[string]float64{"synced": 1, "stale": 0, "not_sent": 1, "nacked": 1})
}

// gauge reads one of types by their state.
func gauge(t *testing.T, m *telemetry.Metrics, name, typ, state string) float64 {
	t.Helper()
	families := xdstest.Must(m.Gatherer().Gather())(t)
	for _, f := range families {
		for _, s := range f.Metric {
			if f.GetName() == name && s.Label[0].GetValue() == state && s.Label[1].GetValue() == typ {
				return s.Gauge.GetValue()
			}
		}
	}
	t.Fatalf("no %s{%s, %s}", name, typ, state)
	return 0
}

// A client that already has everything (P27) is sent nothing. It is in step, and the group is told
// what it has, as of an ACK (P66).
func TestP27_P66_ResumingClientIsSynced(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.RouteType, "r"))
	first := r.delta(nil)
	first.ask(xds.RouteType, "r")
	m := first.recv()
	xdstest.NoError(t, first.CloseSend())
	r.eventually(func() bool { return len(r.srv.Clients()) == 0 })
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{
		Node: node("n"), TypeUrl: string(xds.RouteType), ResourceNamesSubscribe: []string{"r"},
		InitialResourceVersions: map[string]string{"r": m.Resources[0].Version},
	})
	if at := r.is(inspect.StateSynced); at.Sends != 0 {
		t.Errorf("%+v", at)
	}
	if s := r.stands(); s.Has != r.gen() {
		t.Errorf("has %d of %d", s.Has, r.gen())
	}
	want, g := []uint64{r.gen()}, r.groups.Group("edge")
	r.eventually(func() bool {
		g.Mu.Lock()
		defer g.Mu.Unlock()
		for m := range g.Subscribers {
			return slices.Equal(m.AckedGens, want)
		}
		return false
	})
}

// Pages of clients are in order, and whole.
func TestClientsAfter(t *testing.T) {
	r := newServerFixture(t, nil)
	for range 5 {
		r.delta(nil).ask(xds.ClusterType)
	}
	r.eventually(func() bool { return len(r.srv.Clients()) == 5 })
	var all, paged []uint64
	for c := range r.srv.ClientsAfter(0) {
		all = append(all, c.Stream)
	}
	after := uint64(0)
	for range 5 {
		for c := range r.srv.ClientsAfter(after) {
			paged, after = append(paged, c.Stream), c.Stream
			break
		}
	}
	if fmt.Sprint(all) != fmt.Sprint(paged) || len(all) != 5 || all[0] >= all[4] {
		t.Errorf("%v and page by page %v", all, paged)
	}
}

// A client does not have what is too large to be sent, nor a version that includes it.
func TestTooLargeResponseIsNotCounted(t *testing.T) {
	r := smallServer(t, 1, time.Minute)
	g := r.groups.Group("edge")
	long := strings.Repeat("l", 100)
	g.Publish(update(t, xds.EndpointType, "a", long))
	c := r.delta(nil)
	c.ask(xds.EndpointType, "a", long)
	r.eventually(func() bool {
		all := r.srv.Clients()
		return len(all) == 1 && len(all[0].Types) == 1 && all[0].Types[0].State == inspect.StateNotSent && all[0].Types[0].Unsent && all[0].Types[0].Oversized != nil
	})
	if s := r.stands(); s.Has != 0 {
		t.Errorf("it has generation %d of %d, without what is too large", s.Has, r.gen())
	}
}

// A stream whose names a newer stream of its node requests on another connection is marked as
// older. The node has often lost its connection.
func TestOlderStreamsAreMarked(t *testing.T) {
	r := newServerFixture(t, nil)
	first, second := r.dial(), r.dial()
	opened := 0
	open := func(on *grpc.ClientConn, name string) {
		r.delta(on).ask(xds.ClusterType, name)
		opened++
		r.eventually(func() bool {
			all := r.srv.Clients()
			return len(all) == opened && len(all[opened-1].Types) == 1 && all[opened-1].Types[0].Names == 1
		})
	}
	open(first, "a")
	open(first, "b")
	open(first, "b")
	open(second, "a")
	open(second, "c")
	var older []bool
	for c := range r.srv.ClientsAfter(0) {
		older = append(older, c.Types[0].Older)
	}
	if want := []bool{true, false, false, false, false}; !slices.Equal(older, want) {
		t.Errorf("%v, want %v", older, want)
	}
}

// A client waits from when it subscribed to a name that the origin does not answer. Other changes
// of its subscription do not begin the wait again, and an answer ends it.
func TestP57_SinceWhenAClientWaits(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newServerFixture(t, nil)
		g := r.groups.Group("edge")
		g.Publish(update(t, xds.EndpointType, "a", "b"))
		c := r.teller(v)
		c.url = xds.EndpointType
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

// With the key label, what is counted for clients is counted under their key, for streams and for
// polls, and nothing under an empty key. The series of a key exist while its group has a
// subscriber.
func TestCountsHaveTheirKey(t *testing.T) {
	labelled := func(o *Options) {
		m := xdstest.Must(telemetry.New(telemetry.Options{KeyLabel: true}))(t)
		o.Metrics = m
	}
	t.Run("streams", func(t *testing.T) {
		r := newServerFixture(t, labelled)
		r.metrics = r.srv.metrics
		edge, core := r.groups.Group("edge"), r.groups.Group("core")
		edge.Publish(update(t, xds.ClusterType, "a"))
		core.Publish(update(t, xds.ClusterType, "b"))
		c := r.delta(nil)
		c.ask(xds.ClusterType, "*")
		c.want("a ")
		o := r.delta(nil)
		of := node("o")
		of.Cluster = "core"
		o.must(&discoveryv3.DeltaDiscoveryRequest{Node: of, TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: []string{"*"}})
		o.want("b ")
		edge.Publish(update(t, xds.ClusterType, "a=2"))
		c.want("a ")
		for _, line := range []string{
			`downstream_acks_total{key="edge",type="CDS"} 2`,
			`downstream_acks_total{key="core",type="CDS"} 1`,
			`downstream_responses_total{key="edge",type="CDS",variant="delta"} 2`,
			`propagation_seconds_count{key="edge",type="CDS"} 1`,
		} {
			r.eventually(func() bool { return strings.Contains(r.scrape(), "xdsrelay_"+line+"\n") })
		}
		if all := r.scrape(); strings.Contains(all, `key=""`) {
			t.Error("there are series of no key")
		}
		xdstest.NoError(t, o.CloseSend())
		r.eventually(func() bool { return !strings.Contains(r.scrape(), `key="core"`) })
	})
	t.Run("polls", func(t *testing.T) {
		r := newREST(t, labelled)
		r.metrics = r.srv.metrics
		r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
		got := r.Ask(r.HTTP("http1"), xds.ClusterType, "")
		if held := r.Holds(got); held != "a " {
			t.Fatal(held)
		}
		all := r.scrape()
		if line := fmt.Sprintf("xdsrelay_downstream_responses_total{key=%q,type=%q,variant=%q} 1\n", "edge", "CDS", "rest"); !strings.Contains(all, line) {
			t.Errorf("no %s", line)
		}
		if strings.Contains(all, `key=""`) {
			t.Error("there are series of no key")
		}
		r.srv.forgetPollers()
		if strings.Contains(r.scrape(), `key="edge"`) {
			t.Error("the series are there without anybody in the group")
		}
	})
}
