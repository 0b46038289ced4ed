package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// everyField is a response that has something in each field that is kept.
func everyField(t *testing.T, v Variant) []byte {
	t.Helper()
	body := new(anypb.Any)
	unmarshal(t, plainAny("named", "x"), body)
	rs := []*discoveryv3.Resource{
		{Name: "named", Version: "v1", Aliases: []string{"alias"}, Ttl: durationpb.New(time.Hour), Resource: body,
			CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: true}},
		{Name: "beats", Version: "v2", Ttl: durationpb.New(time.Minute)},
		{Name: "unresolved", Version: "v3", Aliases: []string{"asked"}},
	}
	failed := []*discoveryv3.ResourceError{{ResourceName: &discoveryv3.ResourceName{Name: "failed"}, ErrorDetail: &statuspb.Status{Code: 13, Message: "why"}}}
	var m proto.Message = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(EndpointType), SystemVersionInfo: "set", Nonce: "nonce",
		Resources: rs, RemovedResources: []string{"gone", "xdstp://au/envoy.config.endpoint.v3.ClusterLoadAssignment/a?y=2&x=1"}, ResourceErrors: failed}
	if v == SotW {
		whole := &discoveryv3.DiscoveryResponse{TypeUrl: string(EndpointType), VersionInfo: "set", Nonce: "nonce", ResourceErrors: failed}
		for _, r := range rs {
			a, err := anypb.New(r)
			if err != nil {
				t.Fatal(err)
			}
			whole.Resources = append(whole.Resources, a)
		}
		bare := new(anypb.Any)
		unmarshal(t, plainAny("bare", "y"), bare)
		whole.Resources = append(whole.Resources, bare)
		m = whole
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A severed response says what it said, but for bodies, whatever becomes of the
// buffer that it was read from; and what was taken of it has its own.
func TestP18_SeveredAliasesNothing(t *testing.T) {
	for _, v := range []Variant{SotW, Delta} {
		t.Run(v.String(), func(t *testing.T) {
			read := func(msg []byte, after func(*Response)) string {
				r, err := ParseResponse(v, msg)
				if err != nil {
					t.Fatal(err)
				}
				var taken []*Resource
				var words []Unresolved
				for i := range r.Resources {
					raw := &r.Resources[i]
					if raw.HasBody() {
						taken = append(taken, raw.Take(TypeOf(r.TypeURL), nil))
					} else if word, ok := raw.TakeUnresolved(NewNameSet("asked")); ok {
						words = append(words, word)
					}
				}
				after(r)
				var out strings.Builder
				fmt.Fprintf(&out, "%s %s %s -%q\n", r.TypeURL, r.Nonce, r.Version, r.Removed)
				for _, raw := range r.Resources {
					ttl, timed := raw.TTL()
					fmt.Fprintf(&out, "%s %s %q %v %v %v %x\n", raw.Name, raw.OriginVersion, raw.aliases, ttl, timed, raw.HasBody(), raw.extra)
				}
				for _, r := range taken {
					fmt.Fprintf(&out, "took %s %s %q %v %v %x %x\n", r.Name, r.OriginVersion, r.Aliases, r.TTL(), r.Version, r.body, r.extra)
				}
				for _, w := range words {
					fmt.Fprintf(&out, "%q %s %s %x\n", w.Names, w.Resource.Name, w.Resource.OriginVersion, w.Resource.extra)
				}
				for _, e := range r.Errors {
					fmt.Fprintf(&out, "%s %v %x\n", e.Name, e.Code, e.Wire())
				}
				return out.String()
			}
			msg := everyField(t, v)
			want := read(slices.Clone(msg), func(*Response) {})
			got := read(msg, func(r *Response) {
				for i := range r.Resources {
					r.Resources[i].Sever()
				}
				for i := range msg {
					msg[i] = 0xff
				}
				for _, raw := range r.Resources {
					if len(raw.body) > 0 {
						t.Errorf("%s still has the body %x", raw.Name, raw.body)
					}
				}
			})
			if got != want {
				t.Errorf("read\n%s\nwant\n%s", got, want)
			}
			for _, part := range []string{"named v1", "beats", "asked", "failed", "nonce set"} {
				if !strings.Contains(want, part) {
					t.Errorf("%s is not in what is compared:\n%s", part, want)
				}
			}
		})
	}
}
