package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

func unmarshal(t testing.TB, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

func wantFault(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestP18_Faults(t *testing.T) {
	cla := func(name string) []byte { return anyWire(EndpointType, wire(1, name)) }
	long := strings.Repeat("x", MaxNameBytes+1)
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
		{"twice", SotW, wire(2, cla("a"), 2, cla("b"), 2, cla("a")), ErrTwice},
		{"twice", Delta, wire(2, wire(3, "a", 2, cla("a")), 2, wire(3, "a", 2, cla("a"))), ErrTwice},
		{"twice, once wrapped", SotW, wire(2, cla("a"), 2, anyWire(wrapperType, wire(3, "a", 2, cla("a")))), ErrTwice},
		{"in both", Delta, wire(2, wire(3, "a", 2, cla("a")), 6, "a"), ErrBoth},
		{"in both, removed first", Delta, wire(6, "a", 2, wire(3, "a", 2, cla("a"))), ErrBoth},
		{"P28 long", SotW, wire(2, cla(long)), ErrLongName},
		{"P28 long", Delta, wire(2, wire(3, long, 2, cla("a"))), ErrLongName},
		{"P28 long removed", Delta, wire(6, long), ErrLongName},
	} {
		what := fmt.Sprintf("%s (%s)", c.what, c.v)
		// What is needed for the NACK stands before or behind the fault.
		msg := append(wire(4, string(EndpointType), 5, "n1", 1, "v1"), c.parts...)
		r, err := ParseResponse(c.v, msg)
		wantFault(t, what, err, c.want)
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
	// P28's bound is inclusive, and any Unicode is a name.
	for _, name := range []string{strings.Repeat("x", MaxNameBytes), "größe/*?\x00 \u2028", "xdstp://a/b?c=d"} {
		if got := one(t, SotW, EndpointType, cla(name)); got.Name != name {
			t.Errorf("%q was read as %q", name, got.Name)
		}
	}
	// An empty response is one.
	if r, err = ParseResponse(SotW, wire(4, string(ClusterType))); err != nil || len(r.Resources) != 0 {
		t.Errorf("empty: %+v, %v", r, err)
	}
}

// A body decodes to what it was made of, fits its slice exactly, and a nonce
// can follow it.
func TestBodyDecodes(t *testing.T) {
	resources := rapid.Custom(func(t *rapid.T) *Resource {
		name := rapid.StringN(1, 200, 400).Draw(t, "name")
		m := &discoveryv3.Resource{
			Name:     name,
			Resource: &anypb.Any{TypeUrl: string(widget), Value: wire(1, name, 9, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"))},
			Aliases:  rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "aliases"),
		}
		if rapid.Bool().Draw(t, "TTL") {
			m.Ttl = durationpb.New(7e9)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseResponse(Delta, wire(4, string(widget), 2, b))
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(TypeOf(widget), nil)
	})
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringN(120, 140, -1))
	rapid.Check(t, func(t *rapid.T) {
		b := Body{
			Form: Form{Timed: rapid.Bool().Draw(t, "timed")}, Type: widget, Version: text.Draw(t, "version"), Identifier: text.Draw(t, "identifier"),
			Resources: rapid.SliceOfN(resources, 0, 5).Draw(t, "resources"),
		}
		nonce := text.Draw(t, "nonce")
		sotw := &discoveryv3.DiscoveryResponse{VersionInfo: b.Version, TypeUrl: string(widget), Nonce: nonce}
		delta := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: b.Version, TypeUrl: string(widget), Nonce: nonce}
		if b.Identifier != "" {
			sotw.ControlPlane = &corev3.ControlPlane{Identifier: b.Identifier}
			delta.ControlPlane = sotw.ControlPlane
		}
		for _, r := range b.Resources {
			body := new(anypb.Any)
			if err := proto.Unmarshal(r.Any(), body); err != nil {
				t.Fatal(err)
			}
			m := new(discoveryv3.Resource)
			if err := proto.Unmarshal(r.extra, m); err != nil {
				t.Fatal(err)
			}
			m.Name, m.Version, m.Resource = r.Name, b.Version, body
			if b.Timed && r.TTL() > 0 {
				m.Ttl = durationpb.New(r.TTL())
			}
			if b.Timed {
				wrapped, err := anypb.New(m)
				if err != nil {
					t.Fatal(err)
				}
				sotw.Resources = append(sotw.Resources, wrapped)
			} else {
				sotw.Resources = append(sotw.Resources, body)
			}
			m.Version = r.Version.String()
			delta.Resources = append(delta.Resources, m)
		}
		check := func(got, want proto.Message) {
			out := b.Encode()
			if len(out) != cap(out) || len(out) != b.Size() {
				t.Fatalf("%s: %d bytes in %d, size says %d", b.Variant, len(out), cap(out), b.Size())
			}
			if err := proto.Unmarshal(AppendNonce(out, []byte(nonce)), got); err != nil {
				t.Fatal(err)
			}
			if m, ok := got.(*discoveryv3.DiscoveryResponse); ok && b.Timed {
				for i, a := range m.Resources { // the same fields, in whatever order
					inner := new(discoveryv3.Resource)
					if err := a.UnmarshalTo(inner); err != nil {
						t.Fatal(err)
					}
					m.Resources[i], _ = anypb.New(inner) // of a message that was just read
				}
			}
			if !proto.Equal(got, want) {
				t.Fatalf("%s:\n%v, want\n%v", b.Variant, got, want)
			}
		}
		check(new(discoveryv3.DiscoveryResponse), sotw)
		b.Variant = Delta
		b.Removed = rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "removed")
		delta.RemovedResources = b.Removed
		check(new(discoveryv3.DeltaDiscoveryResponse), delta)
	})
}

func TestBodyOfFile(t *testing.T) {
	r := newRes(t, ClusterType, "c", "x")
	if m := resourceMessage(t, r); m.Name != "c" || m.Version != r.Version.String() || m.Resource.TypeUrl != string(ClusterType) {
		t.Errorf("%v", m)
	}
}

// The nonce's tail is separate from the shared body: two streams do not write
// into one array.
func TestP10_NoncesDoNotShare(t *testing.T) {
	body := (&Body{Type: ClusterType, Resources: []*Resource{newRes(t, ClusterType, "c", "")}}).Encode()
	a, b := AppendNonce(body, []byte("1")), AppendNonce(body, []byte("2"))
	ma, mb := new(discoveryv3.DiscoveryResponse), new(discoveryv3.DiscoveryResponse)
	unmarshal(t, a, ma)
	unmarshal(t, b, mb)
	if ma.Nonce != "1" || mb.Nonce != "2" {
		t.Errorf("nonces %q and %q", ma.Nonce, mb.Nonce)
	}
}

// Whatever is accepted from an origin can be decoded by a client, in both
// variants; whatever a client of the origin could not decode is refused.
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
		b := Body{Type: r.TypeURL, Version: r.Version, Identifier: "cp"}
		for i := range r.Resources {
			raw := &r.Resources[i]
			if !raw.HasBody() {
				continue
			}
			res := raw.Take(typ, nil)
			if raw.Take(typ, res) != res {
				t.Fatal("the same twice is a change")
			}
			b.Resources = append(b.Resources, res)
		}
		if err := proto.Unmarshal(AppendNonce(b.Encode(), []byte("n")), new(discoveryv3.DiscoveryResponse)); err != nil {
			t.Fatalf("in SotW: %v", err)
		}
		b.Variant, b.Removed = Delta, r.Removed
		got := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(AppendNonce(b.Encode(), []byte("n")), got); err != nil {
			t.Fatalf("in incremental: %v", err)
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
