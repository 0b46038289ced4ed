package snapshot

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// widget is a type that is not in the type table.
const widget xds.TypeURL = "type.googleapis.com/acme.Widget"

// noon is the time at which the tests begin.
var noon = time.Unix(1e9, 250e6)

func wildcardSub() *Subscription { return &Subscription{Wildcard: true} }

func namesSub(names ...string) *Subscription { return &Subscription{Names: xds.NewNameSet(names...)} }

// newRes returns a resource of type url with this name. content makes its body unique.
func newRes(t testing.TB, url xds.TypeURL, name, content string) *xds.Resource {
	t.Helper()
	r, err := xds.NewResource(xds.TypeOf(url), name, xdstest.NamedAny(string(url), name, content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// timed returns a load assignment with a TTL, received at now.
func timed(t testing.TB, name, content string, ttl time.Duration, now time.Time) *xds.Resource {
	t.Helper()
	return newRes(t, xds.EndpointType, name, content).RenewTTL(ttl, now)
}

// response returns m as parsed from a delta origin.
func response(t testing.TB, m *discoveryv3.DeltaDiscoveryResponse) *xds.Response {
	t.Helper()
	m.Nonce = "n"
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// parsedResource returns r as parsed from the response of a delta origin.
func parsedResource(t testing.TB, typ xds.TypeURL, r *discoveryv3.Resource) *xds.ParsedResource {
	t.Helper()
	return &response(t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Resources: []*discoveryv3.Resource{r}}).Resources[0]
}

// anyOf returns an Any of typ.
func anyOf(t testing.TB, typ xds.TypeURL, name, content string) *anypb.Any {
	t.Helper()
	out := new(anypb.Any)
	if err := proto.Unmarshal(xdstest.NamedAny(string(typ), name, content), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// resourceWithAliases returns a resource with these aliases.
func resourceWithAliases(t testing.TB, typ xds.TypeURL, name, content string, aliases ...string) *xds.Resource {
	t.Helper()
	return parsedResource(t, typ, &discoveryv3.Resource{Name: name, Aliases: aliases, Resource: anyOf(t, typ, name, content)}).Take(xds.TypeOf(typ), nil)
}

// uncacheable returns a resource that must not be cached (P63).
func uncacheable(t testing.TB, typ xds.TypeURL, name string) *xds.Resource {
	t.Helper()
	return parsedResource(t, typ, &discoveryv3.Resource{Name: name, Resource: anyOf(t, typ, name, ""),
		CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: true}}).Take(xds.TypeOf(typ), nil)
}

// resourceErrorOf returns a parsed element of resource_errors.
func resourceErrorOf(t testing.TB, name string, code codes.Code, message string) *xds.ResourceError {
	t.Helper()
	return response(t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(xds.ClusterType), ResourceErrors: []*discoveryv3.ResourceError{{
		ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(code), Message: message}}}}).Errors[0]
}

// namesDiff returns the names that only b has, and those that only a has.
func namesDiff(a, b *xds.NameSet) (add, drop []string) {
	for n, added := range a.Diff(b) {
		if added {
			add = append(add, n)
		} else {
			drop = append(drop, n)
		}
	}
	return add, drop
}
