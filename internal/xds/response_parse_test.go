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

func TestP18_Faults(t *testing.T) {
	cla := func(name string) []byte { return anyWire(EndpointType, wire(1, name)) }
	long := strings.Repeat("x", MaxNameBytes+1)
	aliases := func(n int) (out []byte) {
		for i := range n {
			out = append(out, wire(4, fmt.Sprint(i))...)
		}
		return out
	}
	for _, c := range []struct {
		what  string
		v     Variant
		parts []byte
		want  error
	}{
		{"framing", SotW, []byte{0x12, 0x7f, 1}, ErrUnreadable},
		{"framing", Delta, []byte{0x12, 0x7f, 1}, ErrUnreadable},
		{"an unreadable Any", SotW, wire(2, []byte{0x0a, 0x7f}), ErrUnreadable},
		{"an unreadable Resource", Delta, wire(2, []byte{0x0a, 0x7f}), ErrUnreadable},
		{"an unreadable Any", Delta, wire(2, wire(3, "a", 2, []byte{0x0a, 0x7f})), ErrUnreadable},
		{"an unreadable body", SotW, wire(2, anyWire(EndpointType, []byte{0x0a, 0x7f})), ErrUnreadable},
		{"two bodies", Delta, wire(2, wire(3, "a", 2, cla("a"), 2, cla("a"))), ErrUnreadable},
		{"a name that is not UTF-8", Delta, wire(2, wire(3, "\xff", 2, cla("a"))), ErrUnreadable},
		{"a version that is not UTF-8", Delta, wire(2, wire(3, "a", 1, "\xff", 2, cla("a"))), ErrUnreadable},
		{"an alias that is not UTF-8", Delta, wire(2, wire(3, "a", 4, "\xff", 2, cla("a"))), ErrUnreadable},
		{"an unreadable TTL", Delta, wire(2, wire(3, "a", 6, []byte{0x0a}, 2, cla("a"))), ErrUnreadable},
		{"a type that is not UTF-8, then the right one", SotW, wire(2, append(wire(1, "\xff"), cla("a")...)), ErrUnreadable},
		{"a removed name that is not UTF-8", Delta, wire(6, "\xff"), ErrUnreadable},
		{"a nonce that is not UTF-8", SotW, wire(5, "\xff"), ErrUnreadable},
		{"a version_info that is not UTF-8", SotW, wire(1, "\xff"), ErrUnreadable},
		{"nameless", SotW, wire(2, anyWire(EndpointType, wire(2, "x"))), ErrNameless},
		{"nameless", Delta, wire(2, wire(2, cla("a"))), ErrNameless},
		{"nameless, wrapped", SotW, wire(2, anyWire(wrapperType, wire(2, cla("a")))), ErrNameless},
		{"another type", SotW, wire(2, anyWire(ClusterType, wire(1, "a"))), ErrOtherType},
		{"another type", Delta, wire(2, wire(3, "a", 2, anyWire(ClusterType, wire(1, "a")))), ErrOtherType},
		{"another type, wrapped", SotW, wire(2, anyWire(wrapperType, wire(3, "a", 2, anyWire(ClusterType, nil)))), ErrOtherType},
		{"no type", Delta, wire(2, wire(3, "a", 2, "")), ErrOtherType},
		{"twice", SotW, wire(2, cla("a"), 2, cla("b"), 2, cla("a")), ErrDuplicateName},
		{"twice", Delta, wire(2, wire(3, "a", 2, cla("a")), 2, wire(3, "a", 2, cla("a"))), ErrDuplicateName},
		{"twice, once wrapped", SotW, wire(2, cla("a"), 2, anyWire(wrapperType, wire(3, "a", 2, cla("a")))), ErrDuplicateName},
		{"in both", Delta, wire(2, wire(3, "a", 2, cla("a")), 6, "a"), ErrChangedAndRemoved},
		{"in both, removed first", Delta, wire(6, "a", 2, wire(3, "a", 2, cla("a"))), ErrChangedAndRemoved},
		{"P28 long", SotW, wire(2, cla(long)), ErrLongName},
		{"P28 long", Delta, wire(2, wire(3, long, 2, cla("a"))), ErrLongName},
		{"P28 long removed", Delta, wire(6, long), ErrLongName},
		{"P28 a long alias", Delta, wire(2, wire(3, "a", 4, long, 2, cla("a"))), ErrLongName},
		{"too many aliases", Delta, wire(2, append(wire(3, "a", 2, cla("a")), aliases(MaxAliases+1)...)), ErrAliases},
		{"many aliases", Delta, wire(2, append(wire(3, "a", 2, cla("a")), aliases(MaxAliases)...)), nil},
		{"too many aliases, wrapped", SotW, wire(2, anyWire(wrapperType, append(wire(3, "a", 2, cla("a")), aliases(MaxAliases+1)...))), ErrAliases},
	} {
		what := fmt.Sprintf("%s (%s)", c.what, c.v)
		// The fields for the NACK come before the fault; some faults come before resources.
		msg := append(wire(4, string(EndpointType), 5, "n1", 1, "v1"), c.parts...)
		r, err := ParseResponse(c.v, msg)
		wantError(t, what, err, c.want)
		if r == nil || r.TypeURL != EndpointType || r.Nonce != "n1" || r.Version != "v1" {
			t.Errorf("%s: nothing to NACK with: %+v", what, r)
		}
	}
}

func TestP18_NoFaults(t *testing.T) {
	cla := func(name string) []byte { return anyWire(EndpointType, wire(1, name)) }
	r, err := ParseResponse(SotW, wire(1, "v1", 2, anyWire(wrapperType, wire(3, "w", 1, "3", 2, cla("inner"), 6, wire(1, 5))),
		2, cla("plain"), 4, string(EndpointType), 5, "n", 6, wire(1, "cp")))
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "v1" || r.Nonce != "n" || len(r.Resources) != 2 || r.Removed != nil {
		t.Errorf("%+v", r)
	}
	if w := r.Resources[0]; w.Name != "w" || w.OriginVersion != "3" || !w.HasBody() {
		t.Errorf("the wrapped resource is %+v", w)
	}
	if p := r.Resources[1]; p.Name != "plain" || p.OriginVersion != "" || !p.HasBody() {
		t.Errorf("the plain resource is %+v", p)
	}

	r, err = ParseResponse(Delta, wire(4, string(VHostType), 7, wire(1, "cp"), 6, "gone", 6, "gone",
		2, wire(3, "beat", 6, wire(1, 5)), 2, wire(3, "unresolved", 4, "a.example")))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Removed, []string{"gone", "gone"}) || len(r.Resources) != 2 {
		t.Errorf("%+v", r)
	}
	for _, raw := range r.Resources {
		if raw.HasBody() {
			t.Errorf("%s has a body", raw.Name)
		}
	}
	// A name of exactly MaxNameBytes is valid, and so is any Unicode (P28).
	for _, name := range []string{strings.Repeat("x", MaxNameBytes), "größe/*?\x00 \u2028", "xdstp://a/b?c=d"} {
		if got := takeOnly(t, SotW, EndpointType, cla(name)); got.Name != name {
			t.Errorf("%q parses as %q", name, got.Name)
		}
	}
	// An empty response is valid.
	if r, err = ParseResponse(SotW, wire(4, string(ClusterType))); err != nil || len(r.Resources) != 0 {
		t.Errorf("empty: %+v, %v", r, err)
	}
}

// A client can decode everything that ParseResponse accepts, in both variants.
func FuzzParseResponse(f *testing.F) {
	f.Fuzz(func(t *testing.T, delta bool, msg []byte) {
		v, m := SotW, proto.Message(new(discoveryv3.DiscoveryResponse))
		if delta {
			v, m = Delta, new(discoveryv3.DeltaDiscoveryResponse)
		}
		r, err := ParseResponse(v, msg)
		if r == nil {
			t.Fatal("no response to NACK with")
		}
		if err != nil {
			return
		}
		if bad := proto.Unmarshal(msg, m); bad == nil {
			var typ, nonce string
			switch m := m.(type) {
			case *discoveryv3.DiscoveryResponse:
				typ, nonce = m.TypeUrl, m.Nonce
			case *discoveryv3.DeltaDiscoveryResponse:
				typ, nonce = m.TypeUrl, m.Nonce
			}
			if string(r.TypeURL) != typ || r.Nonce != nonce {
				t.Fatalf("type %q nonce %q, want %q %q", r.TypeURL, r.Nonce, typ, nonce)
			}
		}
		typ := TypeOf(r.TypeURL)
		b := ResponseBody{Type: r.TypeURL, Version: r.Version, Identifier: "cp"}
		for i := range r.Resources {
			raw := &r.Resources[i]
			if !raw.HasBody() {
				continue
			}
			res := raw.Take(typ, nil)
			if raw.Take(typ, res) != res {
				t.Fatal("an equal resource is a change")
			}
			b.Resources = append(b.Resources, res)
		}
		if err := proto.Unmarshal(AppendNonce(b.Encode(), []byte("n")), new(discoveryv3.DiscoveryResponse)); err != nil {
			t.Fatalf("in SotW: %v", err)
		}
		b.Variant, b.Removed = Delta, r.Removed
		got := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(AppendNonce(b.Encode(), []byte("n")), got); err != nil {
			t.Fatalf("in delta: %v", err)
		}
		if len(got.Resources) != len(b.Resources) || !slices.Equal(got.RemovedResources, b.Removed) {
			t.Fatalf("%v", got)
		}
		for i, m := range got.Resources {
			if m.Name != b.Resources[i].Name || m.Version != b.Resources[i].Version.String() || m.Resource.GetTypeUrl() != string(r.TypeURL) {
				t.Fatalf("%v of %+v", m, b.Resources[i])
			}
		}
	})
}

// everyField returns a response with a value in each field that the relay keeps.
func everyField(t *testing.T, v Variant) []byte {
	t.Helper()
	body := new(anypb.Any)
	unmarshal(t, endpointAny("named", "x"), body)
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
		unmarshal(t, endpointAny("bare", "y"), bare)
		whole.Resources = append(whole.Resources, bare)
		m = whole
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A severed response keeps everything but its bodies when its buffer is reused. Resources taken
// from it have their own memory (P18).
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
					r.Resources[i].DropBody()
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
					t.Errorf("the compared text lacks %s:\n%s", part, want)
				}
			}
		})
	}
}
