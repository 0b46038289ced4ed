package sessiontest

import (
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Origin is one type of a group: what the origin said of it, and a clock.
type Origin struct {
	T       testing.TB
	Type    xds.Type
	Builder *snapshot.Builder
	Cur     *snapshot.Snapshot // the newest; nil before anything is published
	Now     time.Time
	Partial bool // more of the answer to the wildcard may follow (P67)
	Pushed  bool // what it says next is under a new version, even if it is equal (P15)

	gen uint64
}

// New is an origin that has said nothing.
func New(t testing.TB, url xds.TypeURL) *Origin {
	typ := xds.TypeOf(url)
	return &Origin{T: t, Type: typ, Builder: snapshot.NewBuilder(typ), Now: time.Unix(1e9, 0)}
}

// Resource makes one of the fixture's type: "a" is named a, "a=2" has another
// content, "a|b|c=2" goes by the aliases b and c as well. In a spec with an
// xdstp:// name the content follows an @, since it may have parameters.
func (o *Origin) Resource(spec string) *xds.Resource {
	names, content, _ := strings.Cut(spec, "=")
	if strings.Contains(spec, "xdstp://") {
		names, content, _ = strings.Cut(spec, "@")
	}
	all := strings.Split(names, "|")
	if strings.HasPrefix(names, "?") {
		return o.Unresolved(all[0][1:], all[1:])
	}
	return o.Make(all[0], content, all[1:]...)
}

// Unresolved is an origin's word that it has no resource for the aliases.
func (o *Origin) Unresolved(name string, aliases []string) *xds.Resource {
	word, ok := o.Cut(&discoveryv3.Resource{Name: name, Aliases: aliases, Version: "v"}).TakeUnresolved(xds.NewNameSet(append(aliases, name)...))
	if !ok {
		o.T.Fatalf("%s speaks of nothing", name)
	}
	return word.Resource
}

// Cut reads a resource as an origin sends it.
func (o *Origin) Cut(r *discoveryv3.Resource) *xds.ParsedResource {
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(o.Type.URL), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		o.T.Fatal(err)
	}
	cut, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		o.T.Fatal(err)
	}
	return &cut.Resources[0]
}

func (o *Origin) Make(name, content string, aliases ...string) *xds.Resource {
	if len(aliases) > 0 {
		a := new(anypb.Any)
		if err := proto.Unmarshal(o.Make(name, content).Any(), a); err != nil {
			o.T.Fatal(err)
		}
		return o.Cut(&discoveryv3.Resource{Name: name, Aliases: aliases, Resource: a}).Take(o.Type, nil)
	}
	var m proto.Message
	switch o.Type.URL {
	case xds.ClusterType:
		m = &clusterv3.Cluster{Name: name, AltStatName: content, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	case xds.EndpointType:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: uint32(len(content))}}}
	default:
		value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		value = protowire.AppendString(protowire.AppendTag(value, 100, protowire.BytesType), content)
		return o.Raw(name, &anypb.Any{TypeUrl: string(o.Type.URL), Value: value})
	}
	a, err := anypb.New(m)
	if err != nil {
		o.T.Fatal(err)
	}
	a.TypeUrl = string(o.Type.URL)
	return o.Raw(name, a)
}

func (o *Origin) Raw(name string, a *anypb.Any) *xds.Resource {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		o.T.Fatal(err)
	}
	r, err := xds.NewResource(o.Type, name, wire)
	if err != nil {
		o.T.Fatal(err)
	}
	return r
}

// Describe writes a resource as resource reads it.
func (o *Origin) Describe(r *xds.Resource) string {
	if r.Unresolved() {
		return "?" + r.Name
	}
	var a anypb.Any
	if err := proto.Unmarshal(r.Any(), &a); err != nil {
		o.T.Fatal(err)
	}
	content := ""
	for _, c := range []string{"", "2", "33"} {
		if slices.Equal(o.Make(r.Name, c).Any(), r.Any()) {
			content = c
		}
	}
	sep := "="
	switch {
	case content == "":
		return r.Name
	case strings.HasPrefix(r.Name, "xdstp://"):
		sep = "@"
	}
	return r.Name + sep + content
}

// With is a resource as an origin sends it: "a=2" with a TTL, and a version of
// the origin's.
func (o *Origin) With(spec, version string, ttl time.Duration, aliases ...string) *xds.Resource {
	o.T.Helper()
	plain := o.Resource(spec)
	body := new(anypb.Any)
	if err := proto.Unmarshal(plain.Any(), body); err != nil {
		o.T.Fatal(err)
	}
	m := &discoveryv3.Resource{Name: plain.Name, Version: version, Resource: body, Aliases: aliases}
	if ttl > 0 {
		m.Ttl = durationpb.New(ttl)
	}
	r := o.Parse(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(o.Type.URL), Resources: []*discoveryv3.Resource{m}})
	return r.Resources[0].Take(o.Type, o.Cur.Resource(plain.Name)).StartTTL(o.Now)
}

func (o *Origin) Parse(m proto.Message) *xds.Response {
	o.T.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		o.T.Fatal(err)
	}
	r, err := xds.ParseResponse(xds.Delta, b)
	if err != nil {
		o.T.Fatal(err)
	}
	return r
}

// Living has the origin send resources with a TTL.
func (o *Origin) Living(wild bool, ttl time.Duration, specs ...string) {
	o.T.Helper()
	u := snapshot.Update{Origin: "o", Wildcard: wild, Received: o.Now}
	for _, s := range specs {
		u.Changed = append(u.Changed, o.With(s, "", ttl))
	}
	o.Apply(u)
}

// Heartbeat has it send heartbeats.
func (o *Origin) Heartbeat(wild bool, names ...string) {
	o.T.Helper()
	u := snapshot.Update{Origin: "o", Wildcard: wild, Received: o.Now, Version: o.Cur.Version}
	for _, n := range names {
		u.Changed = append(u.Changed, o.Cur.Resource(n).StartTTL(o.Now))
	}
	o.Apply(u)
}

// Fail has it say errors: "a" is INTERNAL, "-a" NOT_FOUND.
func (o *Origin) Fail(wild bool, specs ...string) {
	o.T.Helper()
	u := snapshot.Update{Origin: "o", Wildcard: wild, Received: o.Now}
	for _, s := range specs {
		name, absent := strings.CutPrefix(s, "-")
		code := codes.Internal
		if absent {
			code = codes.NotFound
			u.Removed = append(u.Removed, name)
		}
		u.Errors = append(u.Errors, o.Parse(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(o.Type.URL), ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: name},
			ErrorDetail:  &statuspb.Status{Code: int32(code), Message: o.Now.String()},
		}}}).Errors...)
	}
	o.Apply(u)
}

func (o *Origin) Apply(u snapshot.Update) {
	u.Type = o.Type.URL
	o.Builder.Apply(u)
	o.Publish()
}

func (o *Origin) Publish() {
	o.gen++
	o.Cur, _ = o.Builder.Snapshot(o.Cur, o.gen)
}

// Complete has the answer to the wildcard count as complete, and Settle as settled (P67).
func (o *Origin) Complete() {
	o.Builder.Complete()
	o.Publish()
}

func (o *Origin) Settle() {
	o.Builder.Settle()
	o.Publish()
}

func (o *Origin) Pass(d time.Duration) { o.Now = o.Now.Add(d) }

// Say applies an update: "a", "b=2" are changed, "-c" is removed, "?d" could not be
// resolved; wild says that it answers the wildcard. The group has clients that request these names.
func (o *Origin) Say(wild bool, requested *xds.NameSet, specs ...string) {
	u := snapshot.Update{Type: o.Type.URL, Origin: "o", Wildcard: wild, Partial: o.Partial, Received: o.Now}
	for _, s := range specs {
		if name, gone := strings.CutPrefix(s, "-"); gone {
			u.Removed = append(u.Removed, name)
		} else if r := o.Resource(s); r.Unresolved() {
			u.Unresolved = append(u.Unresolved, xds.Unresolved{Resource: r, Names: strings.Split(s[1:], "|")})
		} else {
			u.Changed = append(u.Changed, r)
			if o.Pushed {
				u.Pushed = append(u.Pushed, r.Name)
			}
		}
	}
	o.Builder.Apply(u)
	o.Builder.ResolveAliases(requested)
	o.Publish()
}
