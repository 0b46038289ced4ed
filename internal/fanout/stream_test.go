package fanout

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// A first request with an error and no nonce reports something, and so does each request of
// istio-agent about its machine's health. It is no subscription. It is counted and shown.
func TestP3_Reports(t *testing.T) {
	r := newServerFixture(t, nil)
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
	s := r.ads(r.dial(), xds.SotW)
	s.Send(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(xds.HealthReportType), ErrorDetail: unhealthy},
		&discoveryv3.DiscoveryRequest{TypeUrl: string(xds.HealthReportType)},
		&discoveryv3.DiscoveryRequest{TypeUrl: string(xds.ClusterType), ErrorDetail: unhealthy},
		&discoveryv3.DiscoveryRequest{TypeUrl: string(xds.ClusterType)})
	s.gets(xds.ClusterType)
	r.counted(telemetry.Report, 7)
	if r.log.Count("reason=report") != 7 || r.log.Count("the probe failed") != 4 {
		t.Error(r.log.String())
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
	r := newServerFixture(t, nil)
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
	if r.log.Count("reason=no_names") != 2 {
		t.Error(r.log.String())
	}
	xdstest.NoError(t, c.CloseSend())
	gauge(0)
}

// A first type that maps to nothing is refused; a later one gets no response,
// and the others go on.
func TestP5_Unmapped(t *testing.T) {
	r := newServerFixture(t, nil)
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
	if r.log.Count("reason=unmapped_later_type error=") != 1 {
		t.Error(r.log.String())
	}
	u := r.unacknowledged("n") // the ACK of the clusters may be pending
	if last := u[len(u)-1]; last.Type.URL != xds.RouteType || last.NoKey != "unmapped_later_type" {
		t.Errorf("%+v", u)
	}
}

// NACKs reach the group with the client and its message, of which at most 1 KiB is kept.
func TestP17_NacksAreKept(t *testing.T) {
	const maxMessage = 1 << 10
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	first := xdstest.Must(c.Recv())(t)
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

// A client is told apart by the features of its node, on both kinds of streams;
// what is renewed for it is counted, and so is what it never saw.
func TestP62_FeaturesOfTheNode(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	begin := time.Now()
	life := func(at time.Time) snapshot.Update {
		u := update(t, xds.ClusterType, "a")
		u.Changed[0] = u.Changed[0].RenewTTL(time.Hour, at)
		return u
	}
	g.Publish(life(begin))
	takes := node("takes")
	takes.ClientFeatures = []string{xds.FeatureTTL, xds.FeatureSupportsResourceInSotW}

	c, plain := r.delta(nil), r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: takes, TypeUrl: string(xds.ClusterType)})
	plain.ask(xds.ClusterType, "*")
	first := xdstest.Must(c.Recv())(t)
	// A TTL is what is left of it, and the machine may be busy.
	anHour := func(ttl *durationpb.Duration) bool {
		return ttl.AsDuration() <= time.Hour && ttl.AsDuration() > time.Hour-xdstest.Patience
	}
	if !anHour(first.Resources[0].Ttl) {
		t.Errorf("%v", first)
	}
	if got := plain.want("a "); got.Resources[0].Ttl != nil {
		t.Errorf("to who takes none: %v", got)
	}
	s := r.ads(r.dial(), xds.SotW)
	s.ask(takes, xds.ClusterType)
	whole := s.Next()
	wrapped := new(discoveryv3.Resource)
	if err := whole.Resources[0].UnmarshalTo(wrapped); err != nil || !anHour(wrapped.Ttl) {
		t.Errorf("%v, %v", wrapped, err)
	}

	g.Publish(life(begin.Add(time.Second))) // while nothing is acknowledged
	g.Publish(life(begin.Add(2 * time.Second)))
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResponseNonce: first.Nonce})
	beat := c.recv()
	if len(beat.Resources) != 1 || beat.Resources[0].Resource != nil || beat.Resources[0].Version != first.Resources[0].Version {
		t.Errorf("heartbeat %v", beat)
	}
	for _, line := range []string{`xdsrelay_downstream_heartbeats_total{type="CDS"} 1`, `xdsrelay_heartbeats_coalesced_total{type="CDS"} 1`} {
		r.eventually(func() bool { return strings.Contains(r.scrape(), line+"\n") })
	}
	// A client that reads nothing received nothing.
	g.Publish(update(t, xds.ClusterType, "b"))
	plain.want("b ")
}

// Each NACK is logged and given to the group, without secrets. Envoys print the same message with
// different words before it, which are removed.
func TestNacksAreLogged(t *testing.T) {
	const fleet = 20
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = slog.New(redact.Handler(slog.NewTextHandler(&log, nil))) })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	cc := r.dial()
	said := strings.Repeat("no, ", 500) + `inline_string: "hunter2"`
	for i := range fleet {
		c := r.delta(cc)
		c.ask(xds.ClusterType)
		m := xdstest.Must(c.Recv())(t)
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: []string{"goo.gle/debugproto  ", "goo.gle/debugonly "}[i%2] + said}})
		xdstest.NoError(t, c.CloseSend())
		c.ends()
	}
	r.groups.Mu.Lock()
	defer r.groups.Mu.Unlock()
	if len(r.groups.Nacks) != fleet {
		t.Errorf("%d NACKs are known, of %d", len(r.groups.Nacks), fleet)
	}
	for _, n := range r.groups.Nacks {
		if n.Message != r.groups.Nacks[0].Message {
			t.Errorf("%.40q and %.40q", n.Message, r.groups.Nacks[0].Message)
		}
	}
	if n := log.Count("client rejected a response"); n != fleet {
		t.Errorf("%d lines of %d NACKs", n, fleet)
	}
	if log.Count("hunter2") > 0 {
		t.Error("a secret is in a line")
	}
}

// With thousands of streams, a cache line of a stream is read from memory, which takes as long as
// scanning an ACK. So what responses and ACKs need of a stream and of a type is in few lines.
func TestHotFieldsShareCacheLines(t *testing.T) {
	const line = 64
	st, ty := new(stream), new(streamType)
	of := func(p unsafe.Pointer) uintptr { return uintptr(p) / line }
	for name, c := range map[string]struct {
		first, last unsafe.Pointer
		lines       uintptr
	}{
		"stream, run state and message": {unsafe.Pointer(st), unsafe.Pointer(&st.before), 1},
		"stream, worker":                {unsafe.Pointer(st), unsafe.Pointer(&st.variant), 3},
		"stream, worker and receiver":   {unsafe.Pointer(st), unsafe.Pointer(&st.names), 4},
		"type, without its session":     {unsafe.Pointer(ty), unsafe.Pointer(&ty.metrics), 1},
		"type, session and tracker":     {unsafe.Pointer(ty), unsafe.Add(unsafe.Pointer(&ty.track), unsafe.Sizeof(ty.track)/2), 9},
	} {
		if n := of(c.last) - of(c.first) + 1; n > c.lines {
			t.Errorf("%s: %d cache lines, want %d", name, n, c.lines)
		}
	}
	for range 100 {
		if st, ty := new(stream), new(streamType); uintptr(unsafe.Pointer(st))%line != 0 || uintptr(unsafe.Pointer(&ty.Session))%line != 0 {
			t.Fatalf("a stream of %d bytes is at %p, and the session of a type of %d bytes at %p", unsafe.Sizeof(*st), st, unsafe.Sizeof(*ty), &ty.Session)
		}
	}
}
