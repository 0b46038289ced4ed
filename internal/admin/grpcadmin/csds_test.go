package grpcadmin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func cluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, AltStatName: "of " + name, Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"m": {Fields: map[string]*structpb.Value{"password": structpb.NewStringValue("hunter2")}},
	}}}
}

func nodeNamed(id string, metadata map[string]any) *corev3.Node {
	n := &corev3.Node{Id: id}
	if metadata != nil {
		n.Metadata, _ = structpb.NewStruct(metadata)
	}
	return n
}

// summary lists each client with its resources and their states.
func summary(m *statusv3.ClientStatusResponse) string {
	var out []string
	for _, c := range m.Config {
		s := c.Node.GetId() + ":"
		for _, g := range c.GenericXdsConfigs {
			s += fmt.Sprintf(" %s/%s", g.Name, g.ClientStatus)
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func (r *serverFixture) want(req *statusv3.ClientStatusRequest, want string) (got *statusv3.ClientStatusResponse) {
	r.t.Helper()
	xdstest.Eventually(r.t, "status", func() (err error) {
		if got, err = r.fetch(req); err != nil {
			return err
		}
		if s := summary(got); s != want {
			return fmt.Errorf("%s, want %s", s, want)
		}
		return nil
	})
	return got
}

// The answer has all that a client asked for, under the client's names, and no secret.
func TestFetch(t *testing.T) {
	r := newServerFixture(t, nil)
	r.publish(xds.RouteType, []string{"gone"}, &routev3.RouteConfiguration{Name: "a"}, &routev3.RouteConfiguration{Name: "bad"})
	cc := dial(t, r.down)
	c := r.client(cc, nodeNamed("edge-1", map[string]any{"password": "hunter2"}))
	c.ask(xds.RouteType, "a", "gone", "later")
	c.Ack()
	c.ask(xds.RouteType, "bad")
	c.Nack(string(xds.RouteType), c.Next().Nonce, "it is bad, Bearer hunter2hunter2")
	got := r.want(&statusv3.ClientStatusRequest{}, "edge-1: a/ACKED bad/NACKED gone/DOES_NOT_EXIST later/REQUESTED")
	if text := prototext.Format(got); strings.Contains(text, "hunter2") {
		t.Errorf("a secret is shown: %s", text)
	}
	all := map[string]*statusv3.ClientConfig_GenericXdsConfig{}
	for _, g := range got.Config[0].GenericXdsConfigs {
		all[g.Name] = g
		if g.TypeUrl != string(xds.RouteType) {
			t.Error(g)
		}
	}
	route := new(routev3.RouteConfiguration)
	if g := all["a"]; g.XdsConfig.UnmarshalTo(route) != nil || route.Name != "a" || len(g.VersionInfo) != 32 || g.LastUpdated == nil ||
		g.ErrorState != nil || g.ConfigStatus != statusv3.ConfigStatus_SYNCED {
		t.Error(g)
	}
	if g := all["bad"]; g.XdsConfig != nil || g.VersionInfo != "" || g.ConfigStatus != statusv3.ConfigStatus_ERROR || len(g.ErrorState.VersionInfo) != 32 ||
		!strings.HasPrefix(g.ErrorState.Details, "it is bad") || time.Since(g.ErrorState.LastUpdateAttempt.AsTime()) > time.Minute || g.ErrorState.FailedConfiguration.UnmarshalTo(route) != nil || route.Name != "bad" {
		t.Error(g)
	}
	if g := all["gone"]; g.ConfigStatus != statusv3.ConfigStatus_SYNCED || g.XdsConfig != nil {
		t.Error(g)
	}
	if g := all["later"]; g.ConfigStatus != statusv3.ConfigStatus_NOT_SENT || g.LastUpdated != nil {
		t.Error(g)
	}
	if s := got.Config[0].ClientScope; !strings.HasPrefix(s, "edge-1 at 127.0.0.1:") {
		t.Error(s)
	}
	// Without contents.
	got = r.want(&statusv3.ClientStatusRequest{ExcludeResourceContents: true}, "edge-1: a/ACKED bad/NACKED gone/DOES_NOT_EXIST later/REQUESTED")
	for _, g := range got.Config[0].GenericXdsConfigs {
		if g.XdsConfig != nil || g.ErrorState.GetFailedConfiguration() != nil {
			t.Error(g)
		}
	}
}

// Streams of one node on one connection are one client; on another connection they are another.
func TestStreamsOfOneClient(t *testing.T) {
	r := newServerFixture(t, nil)
	r.publish(xds.ClusterType, nil, cluster("a"))
	cc := dial(t, r.down)
	for range 2 {
		c := r.client(cc, nodeNamed("one", nil))
		c.ask(xds.ClusterType)
		c.Ack()
	}
	r.want(&statusv3.ClientStatusRequest{}, "one: a/ACKED a/ACKED")
	c := r.client(dial(t, r.down), nodeNamed("one", nil))
	c.ask(xds.ClusterType)
	c.Ack()
	r.client(cc, nodeNamed("two", nil)).ask(xds.ClusterType)
	r.want(&statusv3.ClientStatusRequest{}, "one: a/ACKED; one: a/ACKED a/ACKED; two: a/REQUESTED")
}

// A stream gets one answer for each request, and ends with the client's side.
func TestStream(t *testing.T) {
	r := newServerFixture(t, nil)
	r.publish(xds.ClusterType, nil, cluster("a"))
	cc := dial(t, r.down)
	for _, id := range []string{"one", "two"} {
		c := r.client(cc, nodeNamed(id, nil))
		c.ask(xds.ClusterType)
		c.Ack()
	}
	r.want(&statusv3.ClientStatusRequest{}, "one: a/ACKED; two: a/ACKED")
	st := xdstest.Must(r.csds().StreamClientStatus(xdstest.Context(t)))(t)
	for _, id := range []string{"one", "two", "three"} {
		xdstest.NoError(t, st.Send(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: exactly(id)}}}))
		m := xdstest.Must(st.Recv())(t)
		want := id + ": a/ACKED"
		if id == "three" {
			want = ""
		}
		if got := summary(m); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	xdstest.NoError(t, st.CloseSend())
	if m, err := st.Recv(); status.Code(err) != codes.OK && err.Error() != "EOF" {
		t.Errorf("%v %v", m, err)
	}
}

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

// A too large answer is refused, with advice.
func TestAnswersAreBounded(t *testing.T) {
	r := newServerFixture(t, nil)
	large := cluster("large")
	large.AltStatName = strings.Repeat("x y ", maxAnswer/8)
	r.publish(xds.ClusterType, nil, large)
	cc := dial(t, r.down)
	for i := range 3 {
		c := r.client(cc, nodeNamed(fmt.Sprint("n", i), nil))
		c.ask(xds.ClusterType)
		c.Ack()
	}
	r.want(&statusv3.ClientStatusRequest{ExcludeResourceContents: true}, "n0: large/ACKED; n1: large/ACKED; n2: large/ACKED")
	_, err := r.fetch(&statusv3.ClientStatusRequest{})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "2 of 3 clients: select fewer clients with node_matchers") {
		t.Fatal(err)
	}
	got, err := r.fetch(&statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{NodeId: exactly("n2")}}})
	if err != nil || summary(got) != "n2: large/ACKED" || proto.Size(got) < maxAnswer/2 {
		t.Fatal(err)
	}
	r.gate.set(func() { r.gate.gone = true })
	if _, err := r.fetch(&statusv3.ClientStatusRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if len(r.gate.turns) != 0 {
		t.Error("a request still has its turn")
	}
}

// matching reads matchers from JSON.
func matching(t *testing.T, text string) *matcherv3.NodeMatcher {
	t.Helper()
	m := new(matcherv3.NodeMatcher)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestNodeMatchers(t *testing.T) {
	n := nodeNamed("Edge-1.eu", nil)
	wire := xdstest.Must(proto.Marshal(n))(t)
	var table xds.NodeTable
	node := xdstest.Must(table.Intern(wire))(t)
	for text, want := range map[string]bool{
		`{}`:                                true,
		`{"node_id":{"exact":"Edge-1.eu"}}`: true,
		`{"node_id":{"exact":"edge-1.eu"}}`: false,
		`{"node_id":{"exact":"edge-1.EU","ignore_case":true}}`:             true,
		`{"node_id":{"prefix":"Edge-"}}`:                                   true,
		`{"node_id":{"prefix":"edge-","ignore_case":true}}`:                true,
		`{"node_id":{"prefix":"dge"}}`:                                     false,
		`{"node_id":{"suffix":".eu"}}`:                                     true,
		`{"node_id":{"suffix":"Edge"}}`:                                    false,
		`{"node_id":{"contains":"-1."}}`:                                   true,
		`{"node_id":{"contains":"-2."}}`:                                   false,
		`{"node_id":{"safe_regex":{"regex":"Edge-[0-9]\\.eu"}}}`:           true,
		`{"node_id":{"safe_regex":{"regex":"Edge"}}}`:                      false, // anchored
		`{"node_id":{"safe_regex":{"regex":"x|Edge-1.eu"}}}`:               true,
		`{"node_id":{"safe_regex":{"regex":"Edge-1.eu|x"}}}`:               true,
		`{"node_id":{"safe_regex":{"regex":"edge.*"},"ignore_case":true}}`: false,
	} {
		s, err := newSelection([]*matcherv3.NodeMatcher{matching(t, text)})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if s.has(node) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
	// One of several.
	s, err := newSelection([]*matcherv3.NodeMatcher{matching(t, `{"node_id":{"exact":"x"}}`), matching(t, `{"node_id":{"prefix":"E"}}`)})
	if err != nil || !s.has(node) {
		t.Errorf("the second holds: %v", err)
	}
	if s, err = newSelection(nil); err != nil || !s.has(node) {
		t.Errorf("none: %v", err)
	}
}

// Unknown and unbounded matchers are refused with their place.
func TestNodeMatchersAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"node_id":{}}`: "node_matchers[0].node_id: must be exact, prefix, suffix, contains or safe_regex",
		`{"node_metadatas":[{"path":[{"key":"a"}],"value":{"bool_match":true}}]}`:  "node_matchers[0].node_metadatas: not supported",
		`{"node_id":{"custom":{"name":"x"}}}`:                                      "node_matchers[0].node_id: custom: not supported",
		`{"node_id":{"safe_regex":{"regex":"("}}}`:                                 "node_matchers[0].node_id: safe_regex: ",
		`{"node_id":{"safe_regex":{"regex":"` + strings.Repeat("x", 1025) + `"}}}`: "safe_regex: must have at most 1024 bytes",
	} {
		if _, err := newSelection([]*matcherv3.NodeMatcher{matching(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := newSelection(make([]*matcherv3.NodeMatcher, maxMatchers+1)); err == nil {
		t.Error("as many as one likes")
	}
	// A field of a later version of the protos.
	later := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), nil)
	in, id := new(matcherv3.NodeMatcher), matching(t, `{"node_id":{"exact":"x"}}`)
	in.ProtoReflect().SetUnknown(later)
	id.NodeId.ProtoReflect().SetUnknown(later)
	for _, n := range []*matcherv3.NodeMatcher{in, id} {
		if _, err := newSelection([]*matcherv3.NodeMatcher{n}); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%v: %v", n, err)
		}
	}
}
