package fanout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// rekeyed has these rules in force and the keys computed anew, all at once.
func (r *serverFixture) rekeyed(over time.Duration, rules func(n *corev3.Node, typ xds.TypeURL) (string, error)) {
	r.groups.SetRules(rules)
	r.srv.Rekey(over)
}

// moved are rules by which the cluster edge has another key.
func moved(n *corev3.Node, _ xds.TypeURL) (string, error) {
	if n.Cluster == "edge" {
		return "moved", nil
	}
	return n.Cluster, nil
}

func in(cluster string) *corev3.Node { return &corev3.Node{Id: "n", Cluster: cluster} }

// opened is a client of a cluster that has what there is.
func (r *serverFixture) opened(cluster string) *client {
	r.t.Helper()
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: in(cluster), TypeUrl: string(xds.ClusterType)})
	c.want("a ")
	return c
}

func publishAll(r *serverFixture, what string, clusters ...string) {
	for _, name := range clusters {
		r.groups.Group(name).Publish(update(r.t, xds.ClusterType, what), update(r.t, xds.EndpointType, what))
	}
}

// Streams that have another key by the rules as they are now end with UNAVAILABLE, and come back
// under the new key. Streams that keep their key are sent nothing, and go on.
func TestP5_RekeyEndsStreamsOfChangedKeys(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newServerFixture(t, nil)
		publishAll(r, "a", "edge", "other", "moved")
		next := func(c *plain, name string, resources int) {
			t.Helper()
			if got := c.Ack(); len(got.Resources) != resources || v == xds.Delta && !slices.Equal(got.Names, []string{name}) {
				t.Fatalf("with %s came %v", name, got)
			}
		}
		ask := func(cluster string) *plain {
			c := r.ads(r.dial(), v)
			c.ask(in(cluster), xds.ClusterType)
			next(c, "a", 1)
			return c
		}
		ends, stays := ask("edge"), ask("other")
		r.rekeyed(0, moved)
		ends.WantEnd(codes.Unavailable)
		r.counted(telemetry.KeyChanged, 1)
		again := ask("edge")
		publishAll(r, "b", "moved", "other")
		all := map[xds.Variant]int{xds.SotW: 2, xds.Delta: 1}[v]
		next(stays, "b", all)
		next(again, "b", all)
		if r.log.Count("rules, identity or secrets changed: the relay ends the affected streams") != 1 || r.log.Count("moving=1 refused=0 clients=2 over=0s") != 1 {
			t.Errorf("the log has no summary:\n%s", r.log.String())
		}
		// The same rules once more change nothing.
		r.srv.Rekey(0)
		r.eventually(func() bool {
			return r.log.Count("rules, identity or secrets changed: every client keeps its keys\" clients=2") == 1
		})
		r.counted(telemetry.KeyChanged, 1)
	})
}

// Each type of the stream counts: one with another key, one that has no key any more, and one that
// has a key now. The stream is refused only if its first type would have no key.
func TestP5_RekeyLooksAtEveryType(t *testing.T) {
	type rules = map[xds.TypeURL]string
	for name, tc := range map[string]struct {
		was, is rules
		code    codes.Code
		reason  telemetry.Reason
	}{
		"a later type has another": {rules{xds.ClusterType: "k", xds.EndpointType: "k"}, rules{xds.ClusterType: "k", xds.EndpointType: "e"}, codes.Unavailable, telemetry.KeyChanged},
		"a later type has none":    {rules{xds.ClusterType: "k", xds.EndpointType: "k"}, rules{xds.ClusterType: "k"}, codes.Unavailable, telemetry.KeyChanged},
		"a later type has one now": {rules{xds.ClusterType: "k"}, rules{xds.ClusterType: "k", xds.EndpointType: "k"}, codes.Unavailable, telemetry.KeyChanged},
		"the first type has none":  {rules{xds.ClusterType: "k", xds.EndpointType: "k"}, rules{xds.EndpointType: "k"}, codes.PermissionDenied, telemetry.Unmapped},
		"no type has any":          {rules{xds.ClusterType: "k", xds.EndpointType: "k"}, rules{}, codes.PermissionDenied, telemetry.Unmapped},
		"a later one still none":   {rules{xds.ClusterType: "k"}, rules{xds.ClusterType: "k"}, codes.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			by := func(r rules) func(*corev3.Node, xds.TypeURL) (string, error) {
				return func(_ *corev3.Node, typ xds.TypeURL) (string, error) { return r[typ], nil }
			}
			r := newServerFixture(t, nil)
			publishAll(r, "a", "k", "e")
			r.groups.SetRules(by(tc.was))
			c := r.opened("edge")
			c.ask(xds.EndpointType, "a")
			if tc.was[xds.EndpointType] != "" {
				c.want("a ")
			} else {
				r.counted(telemetry.UnmappedLater, 1)
			}
			r.rekeyed(0, by(tc.is))
			if tc.code != codes.OK {
				r.wantEnd(c, tc.code, tc.reason)
				return
			}
			r.eventually(func() bool { return r.log.Count("every client keeps its keys") == 1 })
			publishAll(r, "b", "k")
			c.want("b ")
		})
	}
}

// Which type is the first follows from the requests, not from the order of sending: clusters are sent
// before listeners. So a stream that began with listeners is not refused because clusters have no key
// now.
func TestP5_RekeyKnowsTheOrderOfRequests(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("k").Publish(update(t, xds.ListenerType, "l"), update(t, xds.ClusterType, "a"))
	r.groups.SetRules(func(*corev3.Node, xds.TypeURL) (string, error) { return "k", nil })
	c := r.delta(nil)
	c.ask(xds.ListenerType)
	c.want("l ")
	c.ask(xds.ClusterType)
	c.want("a ")
	r.rekeyed(0, func(_ *corev3.Node, typ xds.TypeURL) (string, error) {
		return map[xds.TypeURL]string{xds.ListenerType: "k"}[typ], nil
	})
	r.wantEnd(c, codes.Unavailable, telemetry.KeyChanged)
}

// A type's key is that of the node as it was at the type's first request, for other
// rules too: dynamic parameters that came since move nothing.
func TestP5_RekeyKnowsTheNodeOfEachType(t *testing.T) {
	r := newServerFixture(t, nil)
	byParameter := func(n *corev3.Node, _ xds.TypeURL) (string, error) {
		return "k" + n.DynamicParameters["x"].GetParams()["y"], nil
	}
	r.groups.SetRules(byParameter)
	publishAll(r, "a", "k", "k2")
	c := r.opened("edge")
	later := in("edge")
	later.DynamicParameters = map[string]*xdscorev3.ContextParams{"x": {Params: map[string]string{"y": "2"}}}
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: later, TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: []string{"a"}})
	c.want("a ")
	r.srv.Rekey(0)
	r.eventually(func() bool { return r.log.Count("every client keeps its keys") == 1 })
}

// A client that the identity rule does not admit any more is refused; so is a stream of
// Secrets that are not given to it any more, and an aggregated one comes again
// without them.
func TestP5_RekeyHoldsTheGate(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge")
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsAllow}
	r.addr = r.listen(policy)
	c := r.opened("edge")
	r.srv.ChangeRules([]PolicyChange{{Policy: policy, Identity: mustIdentity(t, `node.id != "n"`), Secrets: config.SecretsAllow}}, func() {}, 0)
	r.wantEnd(c, codes.PermissionDenied, telemetry.Identity)
	r.eventually(func() bool {
		return r.log.Count(`msg="rules, identity or secrets changed: the relay ends the affected streams" moving=0 refused=1 clients=1 over=0s`) == 1
	})

	policy.Reconfigure(nil, config.SecretsAllow)
	ads := r.opened("edge")
	ads.ask(xds.SecretType, "s")
	ads.ask(xds.ClusterType, "a") // is read after it
	ads.want("a ")
	policy.Reconfigure(nil, config.SecretsDeny)
	r.srv.Rekey(0)
	r.wantEnd(ads, codes.Unavailable, telemetry.Secrets)
	r.srv.Rekey(0)
	r.eventually(func() bool {
		return r.log.Count(`msg="rules, identity or secrets changed: every client keeps its keys" clients=0`) == 1
	})
}

// A stream that looks up its key just when the rules change is not forgotten.
func TestP5_RekeyWhileAStreamJoins(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge", "moved")
	joined := func() { // has its key, and is nowhere to be seen
		r.rekeyed(0, moved)
		r.eventually(func() bool { return r.log.Count("rules, identity or secrets changed") == 1 })
	}
	r.groups.Mu.Lock()
	r.groups.Joined = joined
	r.groups.Mu.Unlock()
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	r.wantEnd(c, codes.Unavailable, telemetry.KeyChanged)
}

// The rules change again while streams are being ended. A stream that has its old key again stays.
// The others end.
func TestP5_SecondRekeyComputesAnew(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge", "other", "moved")
	one, two := r.opened("edge"), r.opened("edge")
	other := r.opened("other")
	r.rekeyed(time.Hour, moved) // the first goes at once, and the second in half an hour
	r.counted(telemetry.KeyChanged, 1)
	r.rekeyed(0, func(n *corev3.Node, _ xds.TypeURL) (string, error) {
		if n.Cluster == "other" {
			return "moved", nil
		}
		return n.Cluster, nil
	})
	if s := other.ends(); s.Code() != codes.Unavailable {
		t.Errorf("ended with %v", s)
	}
	r.counted(telemetry.KeyChanged, 2)
	r.eventually(func() bool { return r.srv.streamsOf("n") == 1 })
	publishAll(r, "b", "edge")
	stayed := 0
	for _, c := range []*client{one, two} {
		if got, err := c.Recv(); err == nil {
			stayed++
			if said(got) != "b " {
				t.Errorf("who stays is sent %q", said(got))
			}
		} else if status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
	if stayed != 1 {
		t.Errorf("%d of two stayed", stayed)
	}
}

// Clients end evenly over the time, first those that are not admitted any more.
func TestP5_RekeyIsSpread(t *testing.T) { rekeyIsSpread(t, 0) }

// The time begins when the relay has found the clients whose keys changed.
func TestP5_RekeyIsSpreadIfKeysTakeLong(t *testing.T) { rekeyIsSpread(t, time.Second) }

// rekeyIsSpread changes the rules. It takes perKey to compute a key by the new ones.
func rekeyIsSpread(t *testing.T, perKey time.Duration) {
	const n, over = 60, 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s, h := bubble(t, nil)
		for i := range n {
			s.poll(t, fmt.Sprint(i), xds.ClusterType)
		}
		all := s.rest.Pollers()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.rekeyer.run(ctx); close(done) }()
		h.SetRules(func(n *corev3.Node, _ xds.TypeURL) (string, error) {
			time.Sleep(perKey)
			if len(n.Id) == 1 { // ten of them
				return "", nil
			}
			return "moved", nil
		})
		s.Rekey(over)
		told := func() (unavailable, denied int) {
			for _, p := range all {
				switch r := p.Refusal(); {
				case r == nil:
				case r.Code == codes.PermissionDenied:
					denied++
				default:
					unavailable++
				}
			}
			return unavailable, denied
		}
		progress := func(checked, ending, tolerance int64, inWork bool) {
			t.Helper()
			c, clients, e, is := s.Rekeying()
			if c != checked || clients != n || e < ending-tolerance || e > ending+tolerance || is != inWork {
				t.Errorf("%d of %d clients checked, %d to end, in work %v; want %d, %d and %v", c, clients, e, is, checked, ending, inWork)
			}
		}
		if perKey > 0 {
			time.Sleep(n/2*perKey + perKey/2)
			progress(n/2, 0, 0, true)
			time.Sleep(n/2*perKey - perKey/2)
		}
		for at := time.Second; at < over; at += time.Second {
			time.Sleep(time.Second)
			moved, denied := told()
			share := n * int(at) / int(over)
			progress(n, int64(n-share), 1, true)
			if got := moved + denied; got < share-1 || got > share+1 {
				t.Errorf("after %v %d are told, want about %d", at, got, share)
			}
			if moved > 0 && denied < 10 {
				t.Errorf("after %v %d have moved, and of those who are refused %d are left", at, moved, 10-denied)
			}
		}
		time.Sleep(time.Second)
		if moved, denied := told(); moved+denied != n {
			t.Errorf("%d and %d are told in the end", moved, denied)
		}
		progress(n, 0, 0, false)
		stop()
		<-done
		s.forgetPollers()
	})
}

// When the relay drains meanwhile, that alone ends streams.
func TestP5_RekeyEndsWithDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := bubble(t, nil)
		s.poll(t, "a", xds.ClusterType)
		s.poll(t, "b", xds.ClusterType)
		p := s.rest.Pollers()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.rekeyer.run(ctx); close(done) }()
		h.SetRules(moved)
		s.Rekey(time.Minute)
		synctest.Wait()
		s.Drain(t.Context(), 0)
		s.Rekey(0)
		time.Sleep(2 * time.Minute)
		if (p[0].Refusal() == nil) == (p[1].Refusal() == nil) {
			t.Error("not just the first was ended")
		}
		stop()
		<-done
		s.forgetPollers()
	})
}

// A poll that waits is told to come again, and the next one is answered under the new key. A poll
// that keeps its key waits on.
func TestP5_RekeyEndsPolls(t *testing.T) {
	r := newREST(t, nil)
	publishAll(r.serverFixture, "a", "edge", "other")
	publishAll(r.serverFixture, "b", "moved")
	c := r.HTTP("http1")
	ask := func(cluster, version string) <-chan *resttest.Reply {
		return r.BeginAs(xdstest.Context(t), c, in(cluster), xds.ClusterType, version)
	}
	edge, other := r.Response(<-ask("edge", "")), r.Response(<-ask("other", ""))
	held, stays := ask("edge", edge.VersionInfo), ask("other", other.VersionInfo)
	r.waiting(2)
	r.rekeyed(0, moved)
	if got := <-held; got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.Status, got.Body)
	} else if f := r.Refused(got, http.StatusServiceUnavailable); f.Reason != string(telemetry.KeyChanged) {
		t.Errorf("%+v", f)
	}
	r.counted(telemetry.KeyChanged, 1)
	if got := r.Holds(<-ask("edge", edge.VersionInfo)); got != "b " {
		t.Errorf("under its new key it holds %q", got)
	}
	publishAll(r.serverFixture, "c", "other")
	if got := r.Holds(<-stays); got != "a c " {
		t.Errorf("who stays holds %q", got)
	}
}

// The same holds for a poll that joins while the rules change.
func TestP5_RekeyWhileAPollJoins(t *testing.T) {
	r := newREST(t, nil)
	publishAll(r.serverFixture, "a", "edge")
	publishAll(r.serverFixture, "b", "moved")
	joined := func() {
		r.rekeyed(0, moved)
		r.eventually(func() bool { return r.log.Count("rules, identity or secrets changed") == 1 })
	}
	r.groups.Mu.Lock()
	r.groups.Joined = joined
	r.groups.Mu.Unlock()
	c := r.HTTP("http1")
	r.Refused(r.Ask(c, xds.ClusterType, ""), http.StatusServiceUnavailable)
	if got := r.Holds(r.Ask(c, xds.ClusterType, "")); got != "b " {
		t.Errorf("the next holds %q", got)
	}
}

// New limits hold for new clients and for clients that ask for more, whether they are higher or
// lower.
func TestReconfigureLimits(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge")
	set := func(l config.Limits) {
		s := *r.srv.settings()
		s.Limits = l
		r.srv.Reconfigure(s)
	}
	refused := func(reason telemetry.Reason, code codes.Code, more func(c *client)) {
		t.Helper()
		was := r.count(reason)
		c := r.delta(nil)
		c.ask(xds.ClusterType)
		more(c)
		if s := c.ends(); s.Code() != code {
			t.Errorf("%s: ended with %v", reason, s)
		}
		r.counted(reason, was+1)
	}
	nothing := func(*client) {}
	big := node("n")
	big.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewBoolValue(true)}}
	first := r.opened("edge")
	first.ask(xds.EndpointType, names(6)...)
	r.eventually(func() bool { return len(r.srv.Clients()[0].Types) == 2 })
	for _, tc := range []struct {
		limits config.Limits
		reason telemetry.Reason
		code   codes.Code
		more   func(*client)
	}{
		{config.Limits{Streams: 1}, telemetry.LimitStreams, codes.Unavailable, nothing},
		{config.Limits{StreamsPerPeer: 1}, telemetry.LimitStreamsPerPeer, codes.ResourceExhausted, nothing},
		{config.Limits{StreamsPerSecond: 1}, telemetry.LimitStreamsPerSecond, codes.Unavailable, func(*client) {
			c := r.delta(nil) // whichever is second
			c.ask(xds.ClusterType)
		}},
		{config.Limits{NodeBytes: 3}, telemetry.LimitNodeBytes, codes.ResourceExhausted, nothing},
		{config.Limits{NamesPerStream: 5}, telemetry.LimitNamesPerStream, codes.ResourceExhausted, func(c *client) { c.ask(xds.EndpointType, names(6)...) }},
		{config.Limits{TypesPerStream: 1}, telemetry.LimitTypesPerStream, codes.ResourceExhausted, func(c *client) { c.ask(xds.EndpointType, "a") }},
	} {
		set(tc.limits)
		if tc.reason == telemetry.LimitStreamsPerSecond {
			one, two := r.srv.admission.EnterPoller(), r.srv.admission.EnterPoller()
			if one != nil || two == nil || two.Reason != tc.reason {
				t.Errorf("the first is told %v, the second %v", one, two)
			}
		} else {
			refused(tc.reason, tc.code, tc.more)
		}
		set(config.Limits{})
		r.opened("edge")
	}
	// The clients were counted all the while.
	set(config.Limits{NamesPerStream: 7})
	first.ask(xds.EndpointType, "seventh")
	first.ask(xds.EndpointType, "eighth")
	if s := first.ends(); s.Code() != codes.ResourceExhausted {
		t.Errorf("who asks for more than it may now ended with %v", s)
	}
}

// A preview of rules says, type by type, what Rekey then does by them. The preview itself disturbs
// no client.
func TestP5_PreviewMatchesRekey(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge", "other", "gone")
	open := func(id, cluster string) *client {
		c := r.delta(nil)
		c.must(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id, Cluster: cluster}, TypeUrl: string(xds.ClusterType)})
		c.want("a ")
		c.ask(xds.EndpointType, "a")
		c.want("a ")
		return c
	}
	clients := map[string]*client{"stays": open("stays", "other"), "moves": open("moves", "edge"), "goes": open("goes", "gone")}
	rules := func(n *corev3.Node, typ xds.TypeURL) (string, error) {
		switch {
		case n.Cluster == "gone":
			return "", nil
		case n.Cluster == "edge" && typ == xds.EndpointType:
			return "moved", nil
		}
		return n.Cluster, nil
	}
	other := &subscribertest.Joiner{}
	other.SetRules(rules)
	keyOf := func(n *xds.Node, p expr.Peer, typ xds.TypeURL) (xds.Key, error) {
		key, err := other.KeyOf(n, p, typ)
		if err != nil {
			err = errors.New("no rule") // as rules have it, which know no refusals
		}
		return key, err
	}
	got := map[string]RekeyPreview{}
	last := uint64(0)
	for m := range r.srv.PreviewRekey(0, keyOf) {
		if m.Stream <= last || m.Peer == "" || m.Identity != "" {
			t.Errorf("%+v after %d", m, last)
		}
		last = m.Stream
		got[m.Node] = m
	}
	if m := got["stays"]; m.Stream == 0 || len(m.Changes) != 0 {
		t.Errorf("%+v", m)
	}
	if m := got["moves"]; len(m.Changes) != 1 || m.Changes[0] != (subscriber.Change{Type: xds.EndpointType, From: xds.NewKey("edge"), To: xds.NewKey("moved")}) {
		t.Errorf("%+v", m)
	}
	if m := got["goes"]; len(m.Changes) != 2 || !m.Changes[0].To.IsZero() || m.Changes[1].Refused == nil {
		t.Errorf("%+v", m)
	}
	for m := range r.srv.PreviewRekey(last-1, keyOf) {
		if m.Stream != last {
			t.Errorf("stream %d comes after %d", m.Stream, last-1)
		}
	}
	publishAll(r, "b", "edge", "other", "gone")
	for name, c := range clients {
		if said(c.recv()) != "b " {
			t.Errorf("%s was disturbed", name)
		}
	}
	r.rekeyed(0, rules)
	r.wantEnd(clients["moves"], codes.Unavailable, telemetry.KeyChanged)
	r.wantEnd(clients["goes"], codes.PermissionDenied, telemetry.Unmapped)
	publishAll(r, "c", "other")
	clients["stays"].want("c ")
}

// Pollers are in the preview as well.
func TestP5_PreviewOfPolls(t *testing.T) {
	r := newREST(t, nil)
	publishAll(r.serverFixture, "a", "edge")
	r.Response(r.Ask(r.HTTP("http1"), xds.ClusterType, ""))
	other := &subscribertest.Joiner{}
	other.SetRules(moved)
	n := 0
	for m := range r.srv.PreviewRekey(0, other.KeyOf) {
		n++
		if m.Node != "n" || len(m.Changes) != 1 || m.Changes[0].To != xds.NewKey("moved") {
			t.Errorf("%+v", m)
		}
	}
	if n != 1 {
		t.Errorf("%d clients", n)
	}
}
