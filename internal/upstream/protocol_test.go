package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/xds"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
	odd = xds.TypeURL("type.googleapis.com/google.protobuf.StringValue")
)

// protocolFixture drives a talker without any I/O.
type protocolFixture struct {
	t      *testing.T
	v      xds.Variant
	sink   *testSink
	talk   talker
	memory memory
	origin string
	max    int
	now    time.Time
	nonce  int
	cell   cell
}

func newProtocolFixture(t *testing.T, v xds.Variant) *protocolFixture {
	r := &protocolFixture{t: t, v: v, sink: newTestSink(), memory: make(memory), origin: "one", max: 4 << 20, now: time.Unix(1000, 0), cell: newCell()}
	r.connect()
	return r
}

// connect begins a new stream after one that ended.
func (r *protocolFixture) connect() { r.begin() }

// reopen begins a new stream instead of one that the relay ended itself.
func (r *protocolFixture) reopen() { r.begin() }

func (r *protocolFixture) begin() {
	r.cell.rest()
	r.nonce = 0
	node, _ := proto.Marshal(&corev3.Node{Id: "n"})
	o := talkOptions{origin: r.origin, node: node, held: r.sink.Held, memory: r.memory, maxRequest: r.max,
		damping: Backoff{Base: time.Second, Max: 30 * time.Second}, random: func(d time.Duration) time.Duration { return d }}
	if r.v == xds.Delta {
		r.talk = newDelta(o)
	} else {
		r.talk = newSotW(o)
	}
	i, lapsed := r.cell.take()
	if i != nil && !r.talk.want(i, lapsed) {
		r.t.Fatal("a new stream cannot carry the interest")
	}
}

// set is an interest that nobody takes yet.
func (r *protocolFixture) set(types ...xds.TypeInterest) { r.cell.set(r.sink.want(types...)) }

// want reports whether the stream can go on with the interest.
func (r *protocolFixture) want(types ...xds.TypeInterest) bool {
	r.set(types...)
	return r.talk.want(r.cell.take())
}

func (r *protocolFixture) next() *request { return r.talk.next(r.now) }

// sent writes all that is due and checks it against what is expected.
func (r *protocolFixture) sent(want ...string) {
	r.t.Helper()
	var got []string
	for req := r.next(); req != nil; req = r.next() {
		got = append(got, show(r.t, r.v, req.bytes()))
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("sent\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// show is a request as people write it.
func show(t *testing.T, v xds.Variant, msg []byte) string {
	t.Helper()
	var m interface {
		GetNode() *corev3.Node
		GetTypeUrl() string
		GetResponseNonce() string
		GetErrorDetail() *statuspb.Status
	}
	var out []string
	if v == xds.Delta {
		d := new(discoveryv3.DeltaDiscoveryRequest)
		mustUnmarshal(t, msg, d)
		m = d
		if len(d.ResourceNamesSubscribe) > 0 {
			out = append(out, fmt.Sprint("+", d.ResourceNamesSubscribe))
		}
		if len(d.ResourceNamesUnsubscribe) > 0 {
			out = append(out, fmt.Sprint("-", d.ResourceNamesUnsubscribe))
		}
		for _, n := range slices.Sorted(maps.Keys(d.InitialResourceVersions)) {
			out = append(out, n+"="+d.InitialResourceVersions[n])
		}
	} else {
		d := new(discoveryv3.DiscoveryRequest)
		mustUnmarshal(t, msg, d)
		m = d
		out = append(out, fmt.Sprint(d.ResourceNames))
		if d.VersionInfo != "" {
			out = append(out, "version "+d.VersionInfo)
		}
	}
	label := xds.TypeOf(xds.TypeURL(m.GetTypeUrl())).Label()
	out = append([]string{label}, out...)
	if m.GetResponseNonce() != "" {
		out = append(out, "nonce "+m.GetResponseNonce())
	}
	if m.GetErrorDetail() != nil {
		out = append(out, "NACK")
		if m.GetErrorDetail().Code != invalidArgument || m.GetErrorDetail().Message == "" {
			t.Fatalf("error_detail %v says nothing", m.GetErrorDetail())
		}
	}
	if m.GetNode() != nil {
		out = append(out, "node")
	}
	return strings.Join(out, " ")
}

func (r *request) bytes() []byte { return slices.Concat(r.head, r.tail) }

func mustUnmarshal(t *testing.T, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

// resp is a response of either variant.
type resp struct {
	typ     xds.TypeURL
	version string
	res     []res
	removed []string
	errors  map[string]codes.Code
}

// res is a resource; content tells versions of it apart.
type res struct {
	name, content string
	version       string // incremental, or wrapped
	wrap          bool   // SotW: in a Resource
	heartbeat     bool   // no body
	aliases       []string
	ttl           time.Duration
	uncached      bool // do_not_cache
	any           *anypb.Any
}

func (x res) body(t *testing.T, typ xds.TypeURL) *anypb.Any {
	if x.any != nil {
		return x.any
	}
	var m proto.Message
	switch typ {
	case cds:
		m = &clusterv3.Cluster{Name: x.name, AltStatName: x.content}
	case eds:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: x.name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: uint32(len(x.content))}}}
	default:
		a, err := anypb.New(wrapperspb.String(x.name))
		if err != nil {
			t.Fatal(err)
		}
		a.TypeUrl = string(typ)
		return a
	}
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// encode makes the message of v.
func (p resp) encode(t *testing.T, v xds.Variant, nonce string) []byte {
	t.Helper()
	var m proto.Message
	var sotw []*anypb.Any
	var delta []*discoveryv3.Resource
	for _, x := range p.res {
		w := &discoveryv3.Resource{Name: x.name, Version: x.version, Aliases: x.aliases}
		if x.ttl > 0 {
			w.Ttl = durationpb.New(x.ttl)
		}
		if x.uncached {
			w.CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true}
		}
		if !x.heartbeat {
			w.Resource = x.body(t, p.typ)
		}
		delta = append(delta, w)
		a := w.Resource
		if x.wrap || x.heartbeat || x.ttl > 0 || x.uncached {
			a, _ = anypb.New(w)
		}
		sotw = append(sotw, a)
	}
	var failed []*discoveryv3.ResourceError
	for _, name := range slices.Sorted(maps.Keys(p.errors)) {
		failed = append(failed, &discoveryv3.ResourceError{
			ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(p.errors[name])}})
	}
	if v == xds.Delta {
		m = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(p.typ), SystemVersionInfo: p.version, Nonce: nonce, Resources: delta, RemovedResources: p.removed, ResourceErrors: failed}
	} else {
		m = &discoveryv3.DiscoveryResponse{TypeUrl: string(p.typ), VersionInfo: p.version, Nonce: nonce, Resources: sotw, ResourceErrors: failed}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// respond has the talker take a response, with nonces 1, 2, 3.
func (r *protocolFixture) respond(p resp) (verdict, tally) {
	r.t.Helper()
	r.nonce++
	v, n, err := r.raw(p.encode(r.t, r.v, fmt.Sprint(r.nonce)))
	if err != nil {
		r.t.Fatal(err)
	}
	return v, n
}

func (r *protocolFixture) raw(msg []byte) (verdict, tally, error) {
	r.t.Helper()
	response, fault := xds.ParseResponse(r.v, msg)
	v, err := r.talk.received(response, fault, r.now)
	if err != nil || !v.take {
		return v, tally{}, err
	}
	u, n := judge(r.v, v, response, r.sink.Held(response.TypeURL), r.now)
	if !v.asked.empty() {
		u.Origin = r.origin
		r.apply(u)
	}
	r.talk.taken(response)
	return v, n, nil
}

func (r *protocolFixture) apply(u xds.Update) {
	if _, err := r.sink.Update(r.t.Context(), u); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets time go by.
func (r *protocolFixture) pass(d time.Duration) { r.now = r.now.Add(d) }

// holds checks the names that are held.
func (r *protocolFixture) holds(typ xds.TypeURL, names ...string) {
	r.t.Helper()
	if got := r.sink.names(typ); !slices.Equal(got, names) {
		r.t.Fatalf("held of %s: %v, want %v", typ, got, names)
	}
}

// is checks what is known of names.
func (r *protocolFixture) is(typ xds.TypeURL, want xds.Presence, names ...string) {
	r.t.Helper()
	for _, n := range names {
		if got := r.sink.presence(typ, n); got != want {
			r.t.Fatalf("%s is %d, want %d", n, got, want)
		}
	}
}

func (r *protocolFixture) last() xds.Update {
	r.t.Helper()
	if len(r.sink.updates) == 0 {
		r.t.Fatal("no update")
	}
	return r.sink.updates[len(r.sink.updates)-1]
}

func clusters(names ...string) []res {
	var out []res
	for _, n := range names {
		out = append(out, res{name: n, version: "v" + n})
	}
	return out
}
