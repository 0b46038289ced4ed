package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

// The TTL is read in both variants and is not part of extra (P62).
func TestP62_TTLIsRead(t *testing.T) {
	for _, v := range []Variant{SotW, Delta} {
		t.Run(v.String(), func(t *testing.T) {
			for _, c := range []struct {
				ttl  *durationpb.Duration
				want time.Duration
				is   bool
			}{
				{nil, 0, false},
				{durationpb.New(1500 * time.Millisecond), 1500 * time.Millisecond, true},
				{&durationpb.Duration{}, minTTL, true},
				{durationpb.New(-time.Hour), minTTL, true},
			} {
				for _, name := range []string{"a", "beat"} {
					b := wrappedResource(t, name, c.ttl)
					if v == SotW {
						b = anyWire(wrapperType, b)
					}
					r, err := ParseResponse(v, wire(4, string(widget), 2, b))
					if err != nil {
						t.Fatal(err)
					}
					raw := &r.Resources[0]
					if ttl, is := raw.TTL(); ttl != c.want || is != c.is {
						t.Errorf("%s: %v, %v; want %v, %v", c.ttl, ttl, is, c.want, c.is)
					}
					if !raw.HasBody() {
						continue
					}
					res := raw.Take(TypeOf(widget), nil)
					if res.TTL() != c.want || len(res.extra) != 0 {
						t.Errorf("%s: taken %v with %x", c.ttl, res.TTL(), res.extra)
					}
					if raw.Take(TypeOf(widget), res) != res {
						t.Error("an equal resource with an equal TTL is not shared")
					}
					if res.Expired(noon.Add(1000 * time.Hour)) {
						t.Error("it expires before Start")
					}
				}
			}
			// A message field may come in several pieces.
			b := append(wrappedResource(t, "a", nil), wire(6, wire(1, 3), 6, wire(2, 500_000_000))...)
			if v == SotW {
				b = anyWire(wrapperType, b)
			}
			r, err := ParseResponse(v, wire(4, string(widget), 2, b))
			if err != nil {
				t.Fatal(err)
			}
			if ttl, _ := r.Resources[0].TTL(); ttl != 3500*time.Millisecond {
				t.Errorf("TTL in two fields: %v", ttl)
			}
		})
	}
}

// Another length of the TTL does not change the content. A TTL that is added or removed does. All
// copies share the bytes (P62).
func TestP62_AnotherTTL(t *testing.T) {
	typ := TypeOf(widget)
	take := func(held *Resource, ttl *durationpb.Duration) *Resource {
		r, err := ParseResponse(Delta, wire(4, string(widget), 2, wrappedResource(t, "a", ttl)))
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(typ, held)
	}
	plain := take(nil, nil)
	thirty := take(plain, durationpb.New(30*time.Second)).StartTTL(noon)
	sixty := take(thirty, durationpb.New(60*time.Second)).StartTTL(noon)
	gone := take(sixty, nil)
	if plain.Same(thirty) || thirty.Same(plain) || !thirty.Same(sixty) || !gone.Same(plain) {
		t.Error("Same is wrong")
	}
	if sixty.TTL() != time.Minute || !thirty.SharesBody(plain) || !sixty.SharesBody(plain) || !gone.SharesBody(plain) {
		t.Error("bytes were copied")
	}
	if !sixty.Renewed(thirty) || thirty.Renewed(thirty) || plain.Renewed(thirty) || plain.StartTTL(noon) != plain {
		t.Error("Renewed is wrong")
	}
	if again := take(sixty, durationpb.New(60*time.Second)); again != sixty || !again.StartTTL(noon).Renewed(sixty) {
		t.Error("a repeated resource does not renew the TTL")
	}
}

func TestP62_RemainingTTL(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct{ ttl, age, left time.Duration }{
		{30 * s, 0, 30 * s},
		{30 * s, 999 * ms, 30 * s},
		{30 * s, 1 * s, 29 * s},
		{30 * s, 29*s + 999*ms, 1 * s},
		{30 * s, 30 * s, ms},
		{30 * s, time.Hour, ms},
		{1500 * ms, 900 * ms, 1500 * ms},
		{1500 * ms, 1100 * ms, 500 * ms},
		{20 * ms, 19 * ms, 20 * ms},
		{30 * s, -5 * s, 30 * s}, // the clock went back
		{2 * maxTTL, 3 * s, 2*maxTTL - 3*s},
	} {
		r := timed(t, "a", "", c.ttl, noon)
		if got := r.RemainingTTL(noon.Add(c.age)); got != c.left {
			t.Errorf("of %v after %v: %v, want %v", c.ttl, c.age, got, c.left)
		}
		if got, want := r.Expired(noon.Add(c.age)), c.age >= c.ttl; got != want {
			t.Errorf("%v after %v: expired %v", c.ttl, c.age, got)
		}
	}
	// RemainingTTL is never less than the real rest, and less than a second more.
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "ttl"))
		age := time.Duration(rapid.Int64Range(0, int64(ttl)-1).Draw(t, "age"))
		r := (&Resource{content: &content{body: []byte{0}}}).RenewTTL(ttl, noon)
		if left, real := r.RemainingTTL(noon.Add(age)), ttl-age; left < real || left >= real+s+ms {
			t.Fatalf("%v of %v after %v", left, ttl, age)
		}
	})
}

// A response has the rest of the TTL if the client accepts TTLs. A heartbeat has no body, and the
// version that the client knows (P62).
func TestP62_BodiesWithTTL(t *testing.T) {
	raw := takeOnly(t, Delta, widget, append(wrappedResource(t, "a", durationpb.New(90*time.Second)), wire(4, "alias", 100, "future")...))
	r := raw.StartTTL(noon)
	now := noon.Add(2500 * time.Millisecond)
	for _, v := range []Variant{SotW, Delta} {
		for _, form := range []ResourceFormat{{}, {WithTTL: true}, {WithTTL: true, Heartbeats: true}, {WithTTL: true, OriginVersions: true}} {
			form.Variant = v
			b := ResponseBody{ResourceFormat: form, Type: widget, Version: "v5", Resources: []*Resource{r}, Now: now}
			if form.Heartbeats {
				b.Heartbeats = []*Resource{timed(t, "b", "", 700*time.Millisecond, now)}
			}
			entries := decode(t, &b)
			if v == SotW && !form.WithTTL {
				if len(entries) != 1 || entries[0] != nil {
					t.Errorf("%+v: wrapped", form)
				}
				continue
			}
			want := "7"
			if v == SotW {
				want = "v5"
			} else if !form.OriginVersions {
				want = r.Version.String()
			}
			m := entries[0]
			if m.Name != "a" || m.Version != want || m.Resource.GetTypeUrl() != string(widget) || len(m.Aliases) != 1 || len(m.ProtoReflect().GetUnknown()) == 0 {
				t.Errorf("%+v: %v", form, m)
			}
			if left := m.Ttl.AsDuration(); form.WithTTL && left != 88*time.Second || !form.WithTTL && m.Ttl != nil {
				t.Errorf("%+v: TTL %v", form, m.Ttl)
			}
			if !form.Heartbeats {
				continue
			}
			beat := entries[1]
			if want = "v5"; v == Delta {
				want = b.Heartbeats[0].Version.String()
			}
			if beat.Name != "b" || beat.Version != want || beat.Resource != nil || beat.Ttl.AsDuration() != 700*time.Millisecond {
				t.Errorf("%+v: heartbeat %v", form, beat)
			}
		}
	}
}

// decode returns the resources of a body; nil for one that is not wrapped.
func decode(t testing.TB, b *ResponseBody) (out []*discoveryv3.Resource) {
	t.Helper()
	wire := b.Encode()
	if len(wire) != cap(wire) || len(wire) != b.Size() {
		t.Fatalf("%d bytes in %d, size says %d", len(wire), cap(wire), b.Size())
	}
	if b.Variant == Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		unmarshal(t, wire, m)
		return m.Resources
	}
	m := new(discoveryv3.DiscoveryResponse)
	unmarshal(t, wire, m)
	for _, a := range m.Resources {
		r := new(discoveryv3.Resource)
		if a.GetTypeUrl() != wrapperType {
			r = nil
		} else if err := proto.Unmarshal(a.Value, r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// do_not_cache is read in both variants (P63).
func TestP63_DoNotCacheIsRead(t *testing.T) {
	res := append(wrappedResource(t, "n", nil), wire(7, wire(1, 1))...)
	if !takeOnly(t, Delta, widget, res).Uncacheable || !takeOnly(t, SotW, widget, anyWire(wrapperType, res)).Uncacheable {
		t.Error("do_not_cache is not read")
	}
	if takeOnly(t, Delta, widget, append(wrappedResource(t, "n", nil), wire(7, wire(1, 0))...)).Uncacheable {
		t.Error("cache_control without do_not_cache counts")
	}
}
