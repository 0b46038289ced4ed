package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// annotated is the path that a service's own definition has for a REST poll:
// the one from which Envoy takes it.
func annotated(t *testing.T, service string) (path string) {
	t.Helper()
	d := xdstest.Must(protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service)))(t)
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	for i := range methods.Len() {
		methods.Get(i).Options().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if f.FullName() == "google.api.http" {
				rule := v.Message()
				path = rule.Get(rule.Descriptor().Fields().ByName("post")).String()
			}
			return true
		})
	}
	return path
}

// Each type is polled at the path that its service is annotated with, by a
// request and with a response in canonical JSON, over HTTP/1.1 and h2c. Types
// without such a path, and the aggregated service, have none.
func TestP70_Paths(t *testing.T) {
	r := newREST(t, nil, &listener.Policy{Secrets: config.SecretsAllow})
	for _, typ := range xds.Types() {
		t.Run(typ.Short, func(t *testing.T) {
			if path := annotated(t, typ.Service); path != typ.REST {
				t.Fatalf("polled at %q, want %q", typ.REST, path)
			}
			if typ.REST == "" {
				return
			}
			u := update(t, typ.URL, "a", "b", "c")
			u.Wildcard = false
			r.groups.Group("edge").Publish(u)
			for i, protocol := range resttest.Protocols {
				got := r.Ask(r.HTTP(protocol), typ.URL, "", "a", "b")
				if got.Proto != i+1 {
					t.Errorf("HTTP/%d", got.Proto)
				}
				m := r.Response(got)
				if held := r.Holds(got); held != "a b " {
					t.Errorf("holds %q", held)
				}
				if m.TypeUrl != string(typ.URL) || m.VersionInfo == "" || m.ControlPlane.GetIdentifier() != "replica/origin" {
					t.Errorf("%v", m)
				}
				for n, a := range m.Resources {
					want := new(anypb.Any)
					xdstest.NoError(t, proto.Unmarshal(u.Changed[n].Any(), want))
					x := xdstest.Must(a.UnmarshalNew())(t)
					y := xdstest.Must(want.UnmarshalNew())(t)
					stripUnknown(y)
					if !proto.Equal(x, y) {
						t.Errorf("%v, want %v", x, y)
					}
				}
			}
		})
	}
	for _, path := range []string{"/v3/discovery:ads", "/v3/discovery:virtual-hosts", "/v3/discovery", "/", "/v3/discovery:clusters/"} {
		got := xdstest.Must(r.Post(xdstest.Context(t), r.HTTP("http1"), path, resttest.Body(t, resttest.Request(resttest.Node("n"), "", ""))))(t)
		f := r.Refused(got, http.StatusNotFound)
		for path := range byPath { // what there is instead
			if !strings.Contains(f.Error, path) {
				t.Errorf("%s is not in %q", path, f.Error)
			}
		}
	}
}

// stripUnknown takes out what the test's plain resources have instead of content.
func stripUnknown(m proto.Message) { m.ProtoReflect().SetUnknown(nil) }

// A request is read in both spellings that canonical JSON has for a field, with
// fields and values that are not known yet, without a type, and with details of
// errors that are linked nowhere.
func TestP70_Requests(t *testing.T) {
	r := newREST(t, nil)
	u := update(t, xds.EndpointType, "a", "b")
	r.groups.Group("edge").Publish(u)
	for name, body := range map[string]string{
		"camel":   `{"resourceNames": ["a"], "typeUrl": "%s", "versionInfo": "", "node": {"id": "n", "cluster": "edge", "userAgentName": "x"}}`,
		"snake":   `{"resource_names": ["a"], "type_url": "%s", "version_info": "", "node": {"id": "n", "cluster": "edge", "user_agent_name": "x"}}`,
		"unknown": `{"resource_names": ["a"], "type_url": "%s", "later": {"x": [1, {}]}, "node": {"id": "n", "cluster": "edge", "later": true}}`,
		"typeless": `{"resource_names": ["a"], "node": {"id": "n", "cluster": "edge", "metadata": {"type": "%s",
			"deep": [[[[{"x": null}]]]]}}}`,
		"nulls":   `{"resource_names": ["a"], "type_url": "%s", "error_detail": null, "node": {"id": "n", "cluster": "edge", "locality": null}}`,
		"details": `{"resource_names": ["a"], "type_url": "%s", "error_detail": {"code": 3, "details": [{"@type": "acme/X", "x": [1]}]}, "node": {"id": "n", "cluster": "edge"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got := xdstest.Must(r.Post(xdstest.Context(t), r.HTTP("h2c"), "/v3/discovery:endpoints", fmt.Appendf(nil, body, xds.EndpointType)))(t)
			if held := r.Holds(got); held != "a " {
				t.Errorf("holds %q", held)
			}
		})
	}
}

// A connection that is as old as max_connection_age ends with the next answer, so
// that clients spread over the replicas there are by then. A younger one stays.
func TestP70_ConnectionsAge(t *testing.T) {
	for _, age := range []time.Duration{time.Nanosecond, time.Hour} {
		for _, protocol := range resttest.Protocols {
			r := newREST(t, func(o *options) { o.MaxConnectionAge = age })
			r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
			c := r.HTTP(protocol)
			var dialled atomic.Int32
			c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			ask := func() { r.Response(r.Ask(c, xds.ClusterType, "")) }
			for range 20 {
				ask()
			}
			if age == time.Hour {
				// A poll may find that the client has not put away the first ones yet.
				if n := dialled.Load(); n > 3 {
					t.Errorf("%s: %d connections", protocol, n)
				}
				continue
			}
			// A poll may be under way before it is seen that the connection ends.
			r.eventually(func() bool { ask(); return dialled.Load() > 10 })
		}
	}
}

// An empty list asks for the same as on a stream (P21).
func TestP70_EmptyList(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = 20 * time.Millisecond })
	eds := update(t, xds.EndpointType, "a")
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a", "b"), eds)
	c := r.HTTP("http1")
	if held := r.Holds(r.Ask(c, xds.ClusterType, "")); held != "a b " {
		t.Errorf("clusters: holds %q", held)
	}
	if held := r.Holds(r.Ask(c, xds.ClusterType, "", "*")); held != "a b " {
		t.Errorf("clusters by *: holds %q", held)
	}
	if got := r.Ask(c, xds.EndpointType, ""); got.Status != http.StatusNotModified {
		t.Errorf("endpoints: %d %s", got.Status, got.Body)
	}
	r.metric(`xdsrelay_downstream_not_modified_total{type="EDS"} 1`)
}

// asked is what a poll with these names asks for.
func (s *Server) asked(t *testing.T, id string, url xds.TypeURL, names ...string) *request {
	t.Helper()
	q, refusal := s.parse(xds.TypeOf(url), resttest.Body(t, resttest.Request(resttest.Node(id), url, "", names...)))
	if refusal != nil {
		t.Fatal(refusal)
	}
	return q
}

func caller(address string) *listener.Caller { return new(listener.Policy).Caller(address, nil) }

// pollOnce is a poll that is answered at once.
func (s *Server) pollOnce(t *testing.T, address, id string, url xds.TypeURL, names ...string) *Poller {
	t.Helper()
	p, refusal := s.pollers.enter(s.asked(t, id, url, names...), caller(address))
	if refusal != nil {
		t.Fatal(refusal)
	}
	s.pollers.leave(p, time.Now())
	return p
}

// A poll's interest stays for twice long_poll after it, whatever connection the
// next comes by, and is one for all polls of the same request at a time. While a
// poll is held it stays anyway.
func TestP70_InterestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newServer(t, nil)
		g := h.Group("edge")
		keep := 2 * s.opts.LongPoll()
		first := s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a", "b")
		time.Sleep(keep - 1)
		s.pollers.expire(time.Now())
		if g.Count() != 1 {
			t.Fatalf("%d subscribers just before the time", g.Count())
		}
		// By another connection, and twice at once.
		q := s.asked(t, "n", xds.EndpointType, "b", "a")
		one, _ := s.pollers.enter(q, caller("10.0.0.1:2"))
		two, _ := s.pollers.enter(q, caller("10.0.0.1:3"))
		if one != first || two != first || g.Count() != 1 {
			t.Fatalf("another poller for the same request; %d subscribers", g.Count())
		}
		s.pollers.leave(one, time.Now())
		time.Sleep(2 * keep)
		s.pollers.expire(time.Now())
		if g.Count() != 1 {
			t.Fatal("gone while a poll was held")
		}
		s.pollers.leave(two, time.Now())
		time.Sleep(keep)
		s.pollers.expire(time.Now())
		if g.Count() != 0 || len(s.pollers.table) != 0 || len(s.pollers.byPeer) != 0 {
			t.Fatalf("%d subscribers, %v, %v when the time is over", g.Count(), s.pollers.table, s.pollers.byPeer)
		}
		if n := s.opts.Metrics.Streams[telemetry.REST].Value(); n != 0 {
			t.Errorf("%d pollers are counted", n)
		}
	})
}

// Polls with another node, peer, type or list are of another poller. One node may have several, as
// Envoy has one for the endpoints of each cluster.
func TestP70_OneNodeManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newServer(t, nil)
		all := map[*Poller]bool{
			s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a"):      true,
			s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "b"):      true,
			s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a", "b"): true,
			s.pollOnce(t, "10.0.0.1:1", "n", xds.RouteType, "a"):         true,
			s.pollOnce(t, "10.0.0.1:1", "m", xds.EndpointType, "a"):      true,
			s.pollOnce(t, "10.0.0.2:1", "n", xds.EndpointType, "a"):      true,
			s.pollOnce(t, "10.0.0.1:1", "n", xds.ClusterType):            true,
			s.pollOnce(t, "10.0.0.1:1", "n", xds.ClusterType, "*", "a"):  true,
		}
		if n := h.Group("edge").Count(); len(all) != 8 || n != 8 {
			t.Errorf("%d pollers, %d subscribers", len(all), n)
		}
		if n := len(s.clients()); n != 8 {
			t.Errorf("%d clients are shown", n)
		}
	})
}

// The pollers that are kept are bounded for each peer. A client over the bound loses those
// without a poll for longest. Other clients lose none.
func TestP70_KeptIsBounded(t *testing.T) {
	for name, limits := range map[string]config.Limits{
		"names_per_stream": {NamesPerStream: 3 * (pollerCost + 2)},
		"streams_per_peer": {StreamsPerPeer: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := newServer(t, func(o *options) { o.Limits = limits })
				g := h.Group("edge")
				s.pollOnce(t, "10.0.0.2:1", "other", xds.EndpointType, "a", "b")
				for i := range 5 {
					s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a", fmt.Sprint(i))
					time.Sleep(time.Second)
				}
				if g.Count() != 4 {
					t.Fatalf("%d subscribers, want three of one peer and one of the other", g.Count())
				}
				p := s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a", "2")
				if now := time.Now(); p.opened == now {
					t.Error("the newest three are not those that are kept")
				}
				s.pollers.close()
				if g.Count() != 0 || s.pollers.kept != 0 {
					t.Errorf("%d subscribers, %d kept", g.Count(), s.pollers.kept)
				}
			})
		})
	}
}

// Keys that are only kept do not stand in the way of a new one of their client.
func TestP70_KeptKeysMakeRoom(t *testing.T) {
	for _, reason := range []telemetry.Reason{telemetry.LimitKeys, telemetry.LimitKeysPerPeer} {
		synctest.Test(t, func(t *testing.T) {
			s, h := newServer(t, nil)
			edge := h.Group("edge")
			h.Refuse = func(subscribertest.Join) *refusal.Refusal {
				if edge.Count() > 0 {
					return refusal.New(14, reason, "one key at a time")
				}
				return nil
			}
			s.pollOnce(t, "10.0.0.1:1", "n", xds.EndpointType, "a")
			s.pollOnce(t, "10.0.0.1:1", "n", xds.RouteType, "a")
			if edge.Count() != 1 {
				t.Errorf("%d subscribers", edge.Count())
			}
			if _, refusal := s.pollers.enter(s.asked(t, "n", xds.ClusterType), caller("10.0.0.2:1")); refusal == nil || refusal.Reason != reason {
				t.Errorf("another client's room was taken: %v", refusal)
			}
		})
	}
}

// A client that makes room for itself costs nothing for the kept pollers of others.
func TestP70_MakingRoomLooksAtOneClient(t *testing.T) {
	s, _ := newServer(t, nil)
	ps := s.pollers
	for i := range 100_000 {
		a := new(keptPollers)
		a.list.PushBack(&Poller{caller: &listener.Caller{PeerID: fmt.Sprint(i)}})
		ps.byPeer[fmt.Sprint(i)] = a
	}
	began := time.Now()
	for range 1000 {
		if ps.drop("another") {
			t.Fatal("dropped a poller of another client")
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("1000 clients that make room take %v beside %d others", took, len(ps.byPeer))
	}
}

// Polls of the same request that come at once make one subscriber of the group.
func TestP70_AtOnce(t *testing.T) {
	r := newREST(t, nil)
	const n = 50
	c := r.HTTP("h2c")
	var replies []<-chan *resttest.Reply
	for range n {
		replies = append(replies, r.Begin(xdstest.Context(t), c, xds.ClusterType, ""))
	}
	r.waiting(n)
	r.eventually(func() bool { return r.subscribers("edge") == 1 })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	for _, got := range replies {
		if held := r.Holds(<-got); held != "a " {
			t.Fatalf("holds %q", held)
		}
	}
	if r.subscribers("edge") != 1 {
		t.Errorf("%d subscribers", r.subscribers("edge"))
	}
}

// Fields that this program does not know are lost on the way into JSON, at
// whatever depth. It is counted, and those that lose nothing are not.
func TestP70_LeftOutFieldsAreCounted(t *testing.T) {
	r := newREST(t, nil)
	inner := &anypb.Any{TypeUrl: "type.googleapis.com/" + string((&discoveryv3.AdsDummy{}).ProtoReflect().Descriptor().FullName()), Value: []byte("\xc2\x3e\x01x")}
	outer := &clusterv3.Cluster{Name: "b", TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": inner}}
	a := xdstest.Must(anypb.New(outer))(t)
	u := update(t, xds.ClusterType, "a", "c")
	u.Changed = append(u.Changed, sessiontest.New(t, xds.ClusterType).Raw("b", a))
	r.groups.Group("edge").Publish(u)
	if held := r.Holds(r.Ask(r.HTTP("http1"), xds.ClusterType, "")); held != "a b c " {
		t.Errorf("holds %q", held)
	}
	r.metric(`xdsrelay_downstream_json_left_out_total{type="CDS"} 1`)
}

// Pollers are shown among the clients, with what they have and what they said.
func TestP70_Status(t *testing.T) {
	r := newREST(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.HTTP("http1")
	m := r.Response(r.Ask(c, xds.ClusterType, ""))
	want := func(state, acked string) {
		t.Helper()
		clients := r.srv.clients()
		if len(clients) != 1 {
			t.Fatalf("%v", clients)
		}
		x, of := clients[0], clients[0].Types[0]
		if x.Node != "n" || x.Cluster != "edge" || x.Variant != "rest" || x.Peer != "127.0.0.1" || x.Stream == 0 {
			t.Errorf("%+v", x)
		}
		if of.State != state || of.Sent != m.VersionInfo || of.Acked != acked || of.Key != "edge" || !of.Wildcard || of.Type != string(xds.ClusterType) {
			t.Errorf("%+v, want %s", of, state)
		}
	}
	// Its answer is its next poll, with the version.
	want(inspect.StateStale, "")
	r.Response(r.Ask(c, xds.ClusterType, ""))
	want(inspect.StateStale, "")
	ctx, cancel := context.WithCancel(xdstest.Context(t))
	held := r.Begin(ctx, c, xds.ClusterType, m.VersionInfo)
	r.waiting(1)
	r.eventually(func() bool { return r.srv.clients()[0].Types[0].State == inspect.StateSynced })
	want(inspect.StateSynced, m.VersionInfo)
	cancel()
	<-held
	r.metric(`xdsrelay_downstream_acks_total{type="CDS"} 1`)
	r.metric(`xdsrelay_downstream_responses_total{type="CDS",variant="rest"} 2`)
	r.metric(`xdsrelay_downstream_streams{variant="rest"} 1`)
}

func TestJitterIsATenth(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 30 * time.Minute, 24 * time.Hour, 720 * time.Hour} {
		least, most := d, d
		for id := range uint64(2000) {
			j := jitter(d, id)
			least, most = min(least, j), max(most, j)
		}
		if least < d-d/10 || most > d+d/10 || most-least < d/6 {
			t.Errorf("%v: from %v to %v", d, least, most)
		}
	}
}

// Whatever a poll is read as, it stays as it is when it is written and read
// again, in both spellings; it never has more values than were counted, and is
// the same on the wire each time: nodes are told apart by their bytes.
func FuzzRESTRequest(f *testing.F) {
	for _, seed := range restSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		wire, err := decodePoll(body, 1<<16)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is no JSON", body)
		}
		m := new(discoveryv3.DiscoveryRequest)
		xdstest.NoError(t, proto.Unmarshal(wire, m))
		if n := len(m.ResourceNames); n > countValues(body) {
			t.Fatalf("%d names, %d values were counted", n, countValues(body))
		}
		var r xds.Request
		if err := r.Scan(xds.SotW, wire, 0); err != nil && !strings.Contains(err.Error(), "longer than") {
			t.Fatalf("its wire form cannot be scanned: %v", err)
		}
		if m.ErrorDetail != nil {
			m.ErrorDetail.Details = nil // of types that are linked nowhere
		}
		for _, how := range []protojson.MarshalOptions{{}, {UseProtoNames: true}} {
			again := xdstest.Must(how.Marshal(m))(t)
			back, err := decodePoll(again, 1<<20)
			if err != nil {
				t.Fatalf("%s: %v", again, err)
			}
			if want, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil || !bytes.Equal(back, want) {
				t.Fatalf("%s: %x, want %x, %v", again, back, want, err)
			}
		}
	})
}

var restSeeds = []string{
	`{}`,
	`{"version_info": "1", "node": {"id": "n", "cluster": "c", "metadata": {"a": [1, null, {"b": "\u00e9"}]}}, "resource_names": ["a", "b"], "type_url": "t"}`,
	`{"versionInfo": "1", "node": {"userAgentBuildVersion": {"version": {"majorNumber": 1}}}, "resourceNames": [], "responseNonce": "x"}`,
	`{"error_detail": {"code": 3, "message": "no", "details": [{"@type": "acme.com/X", "y": {}}]}}`,
	`{"resource_locators": [{"name": "x", "dynamic_parameters": {"a": "b"}}]}`,
	`{"later": [{"x": "\"],"}], "node": {"later": null, "extensions": [{"name": "e"}]}}`,
	`{"resource_names": ["\ud83d\ude00", "\ud800"]}`,
	`{"resource_names": ["a",]}`,
	`[[[[[[[[`,
	`{"node": {"dynamic_parameters": {"x": {"params": {"a": "b"}}}}, "node": {}}`,
}

// The count is an upper bound of the values, also with brackets and commas in strings.
func TestP72_ValuesAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		``:                         1,
		`{}`:                       2,
		`[1, 2, 3]`:                4,
		`{"a": [{}, {}], "b": 1}`:  7,
		`["a,b", "[{,", "\",[{"]`:  4,
		`["\\", "a", "\\\"[[["]`:   4,
		`["never ended, [[[[[`:     2,
		`["ends with a backslash\`: 2,
	} {
		if n := countValues([]byte(text)); n != want {
			t.Errorf("%s: %d values, want %d", text, n, want)
		}
	}
}

// Whatever an origin sends as a resource's body is given to polls as valid JSON,
// or refused with an error (P70).
func FuzzRESTDocument(f *testing.F) {
	urls := []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.EndpointType, xds.RouteType, xds.SecretType, xds.RuntimeType, "t/of.nobody"}
	seed := func(of uint8, m proto.Message) {
		b := xdstest.Must(proto.Marshal(m))(f)
		f.Add(of, b)
	}
	seed(0, &clusterv3.Cluster{Name: "c", AltStatName: "\u2028\"\\"})
	filter := xdstest.Must(anypb.New(&listenerv3.Listener{Name: "inner"}))(f)
	seed(1, &listenerv3.Listener{Name: "l", ListenerFilters: []*listenerv3.ListenerFilter{{Name: "f", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: filter}}}})
	seed(1, &listenerv3.Listener{ListenerFilters: []*listenerv3.ListenerFilter{{ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "t/of.nobody", Value: []byte("x")}}}}})
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "not \xff text"))
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 60000, protowire.BytesType), "a field that nobody knows"))
	f.Add(uint8(5), []byte{0x12, 0x02, 0x0a, 0x00})                                                 // a struct without values
	f.Add(uint8(5), append([]byte{0x12, 0x12, 0x0a, 0x10, 0x0a, 0x01, 'k', 0x12, 0x0b, 0x11, 0, 0}, // a number that is none
		0, 0, 0, 0, 0xf8, 0x7f, 0, 0))
	f.Add(uint8(6), []byte("x"))
	f.Add(uint8(2), []byte{0xff})
	f.Fuzz(func(t *testing.T, of uint8, value []byte) {
		url := urls[int(of)%len(urls)]
		wire := xdstest.Must(proto.Marshal(&anypb.Any{TypeUrl: string(url), Value: value}))(t)
		r, err := xds.NewResource(xds.TypeOf(url), "name", wire)
		if err != nil {
			return
		}
		const head = `{"resources":[`
		b, whole, err := appendJSON([]byte(head), r)
		if err != nil {
			return
		}
		if b = append(b, "]}"...); !json.Valid(b) {
			t.Fatalf("of %s %x comes %q, whole: %v", url, value, b, whole)
		}
	})
}
