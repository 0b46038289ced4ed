package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestP1_Node(t *testing.T) {
	r := newServerFixture(t, nil)
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType)})
	r.wantEnd(c, codes.InvalidArgument, telemetry.NodeMissing)

	// A later node counts and changes nothing, but for dynamic parameters, for
	// types that speak later.
	var joined []*xds.Node
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal { joined = append(joined, j.Node); return nil }
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"), update(t, xds.EndpointType, "a"))
	c = r.delta(nil)
	c.ask(xds.ClusterType)
	c.want("a ")
	later := &corev3.Node{Id: "other", Cluster: "elsewhere", DynamicParameters: map[string]*xdscorev3.ContextParams{
		string(xds.EndpointType): {Params: map[string]string{"shard": "7"}},
	}}
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: later, TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: []string{"a"}})
	c.want("a ")
	r.counted(telemetry.NodeChanged, 1)
	if len(joined) != 2 {
		t.Fatalf("%d joins", len(joined))
	}
	n, err := joined[1].Decode()
	if err != nil || n.Id != "n" || n.Cluster != "edge" || n.DynamicParameters[string(xds.EndpointType)].GetParams()["shard"] != "7" {
		t.Fatalf("the later type's node is %v, %v", n, err)
	}
	if joined[0].ID != "n" {
		t.Fatalf("the first type's node is %s", joined[0].ID)
	}
}

func TestP2_AggregatedNeedsType(t *testing.T) {
	r := newServerFixture(t, nil)
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n")})
	r.wantEnd(c, codes.InvalidArgument, telemetry.TypeMissing)
}

func TestP3_AnyType(t *testing.T) {
	r := newServerFixture(t, nil)
	const thing = "type.googleapis.com/acme.Thing"
	u := update(t, thing, "a", "b")
	u.Wildcard = true
	r.groups.Group("edge").Publish(u)
	c := r.delta(nil)
	c.ask(thing)
	c.want("a b ")
	s := r.sotw(nil)
	if err := s.Send(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: thing, ResourceNames: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Recv(); err != nil || len(got.Resources) != 1 || got.TypeUrl != thing || got.Resources[0].TypeUrl != thing {
		t.Fatalf("%v, %v", got, err)
	}
}

// A first request with an error and no nonce reports something, and so does each request of
// istio-agent about its machine's health. It is no subscription. It is counted and shown.
func TestP3_Reports(t *testing.T) {
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
		if j.Type != xds.ClusterType {
			t.Errorf("%s joined", j.Type)
		}
		return nil
	}
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	unhealthy := &rpcstatus.Status{Code: 13, Message: "the probe failed"}
	d := r.delta(nil)
	for _, m := range []*discoveryv3.DeltaDiscoveryRequest{
		{Node: node("n"), TypeUrl: string(xds.HealthReportType), ErrorDetail: unhealthy},
		{TypeUrl: string(xds.HealthReportType)},
		{TypeUrl: string(xds.HealthReportType), ResponseNonce: "1"},
		{TypeUrl: string(xds.ClusterType), ErrorDetail: unhealthy},
		{TypeUrl: string(xds.ClusterType)},
	} {
		d.must(m)
	}
	d.want("a ")
	r.counted(telemetry.Report, 4)
	s := r.sotw(nil)
	for _, m := range []*discoveryv3.DiscoveryRequest{
		{Node: node("n"), TypeUrl: string(xds.HealthReportType), ErrorDetail: unhealthy},
		{TypeUrl: string(xds.HealthReportType)},
		{TypeUrl: string(xds.ClusterType), ErrorDetail: unhealthy},
		{TypeUrl: string(xds.ClusterType)},
	} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Recv(); err != nil || got.TypeUrl != string(xds.ClusterType) {
		t.Fatalf("%v, %v", got, err)
	}
	r.counted(telemetry.Report, 7)
	if log.Count("reason=report") != 7 || log.Count("the probe failed") != 4 {
		t.Error(log.String())
	}
	if recent := r.srv.RecentRefusals(); len(recent) != 1 || recent[0].Reason != "report" || recent[0].Count != 7 || recent[0].Node != "n" {
		t.Errorf("%+v", recent)
	}
	for _, c := range r.srv.Clients() {
		if len(c.Types) != 1 {
			t.Errorf("a report is shown as a subscription: %+v", c.Types)
		}
	}
}

// A delta client gets nothing of resources that a SotW origin sends without names. That is counted,
// logged and shown as long as it lasts.
func TestP3_NoNamesForDelta(t *testing.T) {
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	const thing = "type.googleapis.com/acme.Thing"
	publish := func(names ...string) {
		u := update(t, thing, names...)
		u.Wildcard = true
		r.groups.Group("edge").Publish(u)
	}
	place := func(i int) string { return fmt.Sprintf("%s%06d", xds.PlacePrefix, i) }
	publish(place(0), place(1))
	c := r.delta(nil)
	c.ask(thing)
	gauge := func(n int) {
		t.Helper()
		r.eventually(func() bool { return r.countOf("downstream_unanswered_types", telemetry.NoNames) == n })
	}
	gauge(1)
	if at := r.is("NOT SENT"); !at.Unsent {
		t.Errorf("%+v", at)
	}
	publish(place(2))
	publish("-"+place(0), "-"+place(1), "-"+place(2), "a")
	c.want("a ")
	gauge(0)
	publish("-a", place(0), place(1))
	gauge(1)
	r.is("STALE")
	r.counted(telemetry.NoNames, 2)
	if log.Count("reason=no_names") != 2 {
		t.Error(log.String())
	}
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	gauge(0)
}

// A first type that maps to nothing is refused; a later one gets no response,
// and the others go on.
func TestP5_Unmapped(t *testing.T) {
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
		if j.Type == xds.RouteType {
			return refusal.New(codes.PermissionDenied, telemetry.Unmapped, "no rule matches")
		}
		return nil
	}
	c := r.delta(nil)
	c.ask(xds.RouteType, "r")
	r.wantEnd(c, codes.PermissionDenied, telemetry.Unmapped)

	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"), update(t, xds.RouteType, "r"))
	c = r.delta(nil)
	c.ask(xds.ClusterType)
	c.want("a ")
	c.ask(xds.RouteType, "r")
	c.ask(xds.RouteType, "q")
	c.ask(xds.ClusterType, "a") // is read after these
	c.want("a ")
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "b"))
	c.want("b ")
	r.counted(telemetry.UnmappedLater, 1)
	if log.Count("reason=unmapped_later_type error=") != 1 {
		t.Error(log.String())
	}
	u := r.unacknowledged("n") // the ACK of the clusters may be pending
	if last := u[len(u)-1]; last.Type.URL != xds.RouteType || last.NoKey != "unmapped_later_type" {
		t.Errorf("%+v", u)
	}
}

// One client's NACK, silence and slowness change nothing for another.
func TestP16_OneClientDisturbsNoOther(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	refuses, silent, good := r.delta(nil), r.delta(nil), r.delta(nil)
	for _, c := range []*client{refuses, silent, good} {
		c.ask(xds.ClusterType)
	}
	first, err := refuses.Recv()
	if err != nil {
		t.Fatal(err)
	}
	refuses.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: first.TypeUrl, ResponseNonce: first.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}})
	good.want("a ")
	for i := range 20 {
		name := fmt.Sprintf("c%d", i)
		g.Publish(update(t, xds.ClusterType, name))
		good.want(name + " ")
	}
}

// NACKs reach the group with the client and its message, of which at most 1 KiB is kept.
func TestP17_NacksAreKept(t *testing.T) {
	const maxMessage = 1 << 10
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	first, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	long := "the resource: " + strings.Repeat("x\u00e9", 2000) + "; the reason"
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: first.TypeUrl, ResponseNonce: first.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: long}})
	c.ask(xds.EndpointType, "x") // is handled after
	c.ask("")
	c.ends()
	r.groups.Mu.Lock()
	defer r.groups.Mu.Unlock()
	if len(r.groups.Nacks) != 1 {
		t.Fatalf("%d NACKs", len(r.groups.Nacks))
	}
	if n := r.groups.Nacks[0]; n.Node != "n" || n.Code != 3 || n.Version != first.SystemVersionInfo || len(n.Message) > maxMessage || len(n.Message) < maxMessage-3 ||
		!strings.HasPrefix(n.Message, "the resource: x") || !strings.Contains(n.Message, "…") || !strings.HasSuffix(n.Message, "; the reason") || !utf8.ValidString(n.Message) {
		t.Fatalf("NACK %+v", n)
	}
}

func TestP28_Names(t *testing.T) {
	r := newServerFixture(t, nil)
	odd := "ünï/cödé?*%20\n☃"
	u := update(t, xds.EndpointType, odd, "-"+string(make([]byte, xds.MaxNameBytes)))
	r.groups.Group("edge").Publish(u)
	c := r.delta(nil)
	c.ask(xds.EndpointType, odd)
	c.want(odd + " ")
	c.ask(xds.EndpointType, string(make([]byte, xds.MaxNameBytes))) // just allowed
	c.recv()
	c.ask(xds.EndpointType, string(make([]byte, xds.MaxNameBytes+1)))
	r.wantEnd(c, codes.InvalidArgument, telemetry.NameBytes)
	c = r.delta(nil)
	c.ask(xds.TypeURL(make([]byte, xds.MaxNameBytes+1))) // a type is kept as well
	if s := c.ends(); s.Code() != codes.InvalidArgument {
		t.Fatalf("a long type URL ends with %v", s.Code())
	}
	r.counted(telemetry.NameBytes, 2)
}

// Pending types of a stream are sent in the order of types.
func TestP35_Order(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	order := []xds.TypeURL{xds.ClusterType, xds.EndpointType, xds.ListenerType, xds.ScopedType, xds.RouteType, xds.VHostType, xds.RuntimeType}
	c := r.delta(nil)
	named := func(url xds.TypeURL, spec string) snapshot.Update { // what came for the name, not the wildcard
		u := update(t, url, spec)
		u.Wildcard = false
		return u
	}
	var us []snapshot.Update
	for i := range order {
		url := order[len(order)-1-i]
		c.ask(url, "x")
		us = append(us, named(url, "-x"))
	}
	g.Publish(us...) // answers in any order: the subscriptions may still be on their way
	for range order {
		c.want("-x ")
	}
	r.eventually(r.inStep)
	for round := range 30 {
		us = us[:0]
		for i := range order {
			us = append(us, named(order[len(order)-1-i], fmt.Sprintf("x=%s", []string{"", "2"}[round%2])))
		}
		g.Publish(us...)
		for _, url := range order {
			if got := c.want("x "); got.TypeUrl != string(url) {
				t.Fatalf("round %d: %s, want %s", round, got.TypeUrl, url)
			}
		}
		r.eventually(r.inStep)
	}
}

// A changed cluster is followed by its load assignment, though unchanged.
func TestP37_FollowsOnStream(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a", "b"), update(t, xds.EndpointType, "a", "b"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	c.want("a b ")
	c.ask(xds.EndpointType, "a", "b")
	c.want("a b ")
	g.Publish(update(t, xds.ClusterType, "b=2"))
	if got := c.want("b "); got.TypeUrl != string(xds.ClusterType) {
		t.Fatal(got.TypeUrl)
	}
	if got := c.want("b "); got.TypeUrl != string(xds.EndpointType) {
		t.Fatal(got.TypeUrl)
	}
	g.Publish(update(t, xds.ClusterType, "a=2"))
	c.want("a ")
	c.want("a ")
}

// The identifier names replica and origin; a resource passes through untouched,
// with fields that the program does not know.
func TestP39_PassThrough(t *testing.T) {
	r := newServerFixture(t, nil)
	body, err := anypb.New(&listenerv3.Listener{Name: "l", StatPrefix: "s"})
	if err != nil {
		t.Fatal(err)
	}
	body.Value = protowire.AppendVarint(protowire.AppendTag(body.Value, 19999, protowire.VarintType), 7)
	res := &discoveryv3.Resource{Name: "l", Version: "7", Aliases: []string{"x"}, Resource: body, CacheControl: &discoveryv3.Resource_CacheControl{}}
	unknown := protowire.AppendString(protowire.AppendTag(nil, 500, protowire.BytesType), "later")
	res.ProtoReflect().SetUnknown(unknown)
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(xds.ListenerType), Resources: []*discoveryv3.Resource{res}, SystemVersionInfo: "v7"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	typ := xds.TypeOf(xds.ListenerType)
	r.groups.Group("edge").Publish(snapshot.Update{Type: typ.URL, Wildcard: true, Version: "v7", Changed: []*xds.Resource{resp.Resources[0].Take(typ, nil)}})
	c := r.delta(nil)
	c.ask(typ.URL)
	got := c.recv()
	if got.ControlPlane.GetIdentifier() != "replica/origin" || got.SystemVersionInfo != "v7" {
		t.Fatalf("identifier %q, version %q", got.ControlPlane.GetIdentifier(), got.SystemVersionInfo)
	}
	g := got.Resources[0]
	if !proto.Equal(g.Resource, body) || string(g.ProtoReflect().GetUnknown()) != string(unknown) || len(g.Aliases) != 1 || g.CacheControl == nil {
		t.Fatalf("the resource is %v", g)
	}
	s := r.sotw(nil)
	if err := s.Send(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(typ.URL)}); err != nil {
		t.Fatal(err)
	}
	sr, err := s.Recv()
	if err != nil || !proto.Equal(sr.Resources[0], body) || sr.VersionInfo != "v7" || sr.ControlPlane.GetIdentifier() != "replica/origin" {
		t.Fatalf("%v, %v", sr, err)
	}
	// Ignored locators would make an empty list, a wildcard.
	c = r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(typ.URL), ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "l"}}})
	r.wantEnd(c, codes.Unimplemented, telemetry.ResourceLocators)
}

func TestBadRequests(t *testing.T) {
	r := newServerFixture(t, nil)
	c := r.delta(nil)
	n := node("n")
	n.ProtoReflect().SetUnknown(protowire.AppendTag(nil, 3, protowire.BytesType)) // a field cut short
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: string(xds.ClusterType)})
	r.wantEnd(c, codes.InvalidArgument, telemetry.NodeInvalid)

	c = r.delta(nil)
	req := &discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(xds.ClusterType)}
	req.ProtoReflect().SetUnknown([]byte{0x1a, 0x7f, 'x'})
	c.must(req)
	r.wantEnd(c, codes.InvalidArgument, telemetry.RequestInvalid)
}

// A client that stalls gets the newest when it reads again, and not all that
// came meanwhile; without ACKs, ack_timeout lets the next go.
func TestP19_AckTimeoutOnStream(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.AckTimeout = 30 * time.Millisecond })
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	if first, err := c.Recv(); err != nil || said(first) != "a " {
		t.Fatalf("%v, %v", first, err)
	}
	g.Publish(update(t, xds.ClusterType, "b"))
	g.Publish(update(t, xds.ClusterType, "c"))
	second, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if got := said(second); got != "b c " {
		t.Fatalf("after ack_timeout: %q", got)
	}
}

// A client that withholds the ACK of clusters gets the next clusters when a
// later type has a change that came after, and not before: neither for the
// clusters' change alone nor for a later type's change that came before the
// clusters went out.
func TestP19_WarmingOnStream(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"), update(t, xds.ListenerType, "l"))
	c := r.delta(nil)
	c.ask(xds.ListenerType)
	c.want("l ")
	c.ask(xds.ClusterType)
	next := func() *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		got, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := next(); said(got) != "a " { // not acknowledged from here on
		t.Fatal(said(got))
	}
	g.Publish(update(t, xds.ClusterType, "b"))
	c.ask(xds.RouteType, "r") // something that goes out, after b did not
	g.Publish(update(t, xds.RouteType, "r"))
	if got := next(); said(got) != "b " {
		// The route is a change of a later type that came after a: b goes first.
		t.Fatalf("%s of %s", said(got), got.TypeUrl)
	}
	if got := next(); said(got) != "r " {
		t.Fatal(said(got))
	}
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.RouteType), ResponseNonce: "none"})
	g.Publish(update(t, xds.ClusterType, "d"))
	c.ask(xds.RuntimeType, "-x") // never answered: nothing is known of it
	g.Publish(update(t, xds.ListenerType, "m"))
	if got := next(); said(got) != "d " || got.TypeUrl != string(xds.ClusterType) {
		t.Fatalf("%s of %s", said(got), got.TypeUrl)
	}
	if got := next(); said(got) != "m " {
		t.Fatal(said(got))
	}
	// Clusters alone wait.
	g.Publish(update(t, xds.ClusterType, "e"))
	r.eventually(func() bool {
		for _, st := range r.srv.all() {
			st.mu.Lock()
			ty := st.order[0]
			idle := st.run.dirty.Load() == 0 && st.run.word.Load()&(queued|running|inFlight) == 0
			waits := idle && ty.PendingACK() && ty.Pending(ty.snapshot())
			st.mu.Unlock()
			if waits {
				return true
			}
		}
		return false
	})
}

// A request that comes between a plan and its sending is not passed over: the
// names that it adds are answered, those that it drops are not sent for it.
func TestRequestsBetweenPlanAndSend(t *testing.T) {
	r := newServerFixture(t, nil)
	all := names(400)
	r.groups.Group("edge").Publish(update(t, xds.EndpointType, all...))
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: all[:1]})
	for _, n := range all[1:] {
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: []string{n}})
	}
	got := map[string]bool{}
	for len(got) < len(all) {
		resp := c.recv()
		for _, res := range resp.Resources {
			if got[res.Name] {
				t.Fatalf("%s came twice", res.Name)
			}
			got[res.Name] = true
		}
	}
}

// Streams that need a frame that another worker is building get it when it is
// there.
func TestManyStreamsOneFrame(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	conn := r.dial()
	var cs []*client
	for range 40 {
		c := r.delta(conn)
		c.ask(xds.ClusterType)
		cs = append(cs, c)
	}
	for round := range 10 {
		var specs []string
		for _, n := range names(300) {
			specs = append(specs, fmt.Sprintf("%s=%s", n, []string{"", "2"}[round%2]))
		}
		g.Publish(update(t, xds.ClusterType, specs...))
		for _, c := range cs {
			if got := c.recv(); len(got.Resources) != 300 {
				t.Fatalf("round %d: %d resources", round, len(got.Resources))
			}
		}
	}
}

// A later type that is refused for another reason than its mapping ends the
// stream: it does not stay open.
func TestP5_LaterTypeUnavailable(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
		if j.Type == xds.RouteType {
			return refusal.New(codes.Unavailable, telemetry.LimitKeys, "no room")
		}
		return nil
	}
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	c.want("a ")
	c.ask(xds.RouteType, "r")
	r.wantEnd(c, codes.Unavailable, telemetry.LimitKeys)
}
