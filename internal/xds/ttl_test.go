package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

// noon is when the clocks of these tests begin.
var noon = time.Unix(1e9, 250e6)

// timed is a load assignment with a TTL, received at now.
func timed(t testing.TB, name, content string, ttl time.Duration, now time.Time) *Resource {
	t.Helper()
	return newRes(t, EndpointType, name, content).Renew(ttl, now)
}

// wrapped is a resource as both variants can carry it.
func wrapped(t testing.TB, name string, ttl *durationpb.Duration) []byte {
	t.Helper()
	m := &discoveryv3.Resource{Name: name, Version: "7", Ttl: ttl}
	if name != "beat" {
		m.Resource = &anypb.Any{TypeUrl: string(widget), Value: wire(1, name)}
	}
	return marshal(t, m)
}

// The TTL is read in both variants, and is none of the bytes that pass
// untouched.
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
					b := wrapped(t, name, c.ttl)
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
						t.Error("the same TTL is another resource")
					}
					if res.Expired(noon.Add(1000 * time.Hour)) {
						t.Error("it expires before it was received")
					}
				}
			}
			// The parts of a Duration may come in several fields.
			b := append(wrapped(t, "a", nil), wire(6, wire(1, 3), 6, wire(2, 500_000_000))...)
			if v == SotW {
				b = anyWire(wrapperType, b)
			}
			r, err := ParseResponse(v, wire(4, string(widget), 2, b))
			if err != nil {
				t.Fatal(err)
			}
			if ttl, _ := r.Resources[0].TTL(); ttl != 3500*time.Millisecond {
				t.Errorf("in two fields: %v", ttl)
			}
		})
	}
}

// A new TTL value is no other content, one that appears or goes is; all share
// the bytes.
func TestP62_AnotherTTL(t *testing.T) {
	typ := TypeOf(widget)
	take := func(held *Resource, ttl *durationpb.Duration) *Resource {
		r, err := ParseResponse(Delta, wire(4, string(widget), 2, wrapped(t, "a", ttl)))
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(typ, held)
	}
	plain := take(nil, nil)
	thirty := take(plain, durationpb.New(30*time.Second)).Start(noon)
	sixty := take(thirty, durationpb.New(60*time.Second)).Start(noon)
	gone := take(sixty, nil)
	if plain.Same(thirty) || thirty.Same(plain) || !thirty.Same(sixty) || !gone.Same(plain) {
		t.Error("the wrong ones are the same")
	}
	if sixty.TTL() != time.Minute || !thirty.shares(plain) || !sixty.shares(plain) || !gone.shares(plain) {
		t.Error("bytes were copied")
	}
	if !sixty.Renewed(thirty) || thirty.Renewed(thirty) || plain.Renewed(thirty) || plain.Start(noon) != plain {
		t.Error("renewals")
	}
	if again := take(sixty, durationpb.New(60*time.Second)); again != sixty || !again.Start(noon).Renewed(sixty) {
		t.Error("one that is sent again is no renewal")
	}
}

func TestP62_WhatIsLeft(t *testing.T) {
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
		{30 * s, -5 * s, 30 * s}, // a clock that went back
		{2 * maxTTL, 3 * s, 2*maxTTL - 3*s},
	} {
		r := timed(t, "a", "", c.ttl, noon)
		if got := r.Left(noon.Add(c.age)); got != c.left {
			t.Errorf("of %v after %v: %v, want %v", c.ttl, c.age, got, c.left)
		}
		if got, want := r.Expired(noon.Add(c.age)), c.age >= c.ttl; got != want {
			t.Errorf("%v after %v: expired %v", c.ttl, c.age, got)
		}
	}
	// Never less than what is left by the clock, and less than a second more.
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "ttl"))
		age := time.Duration(rapid.Int64Range(0, int64(ttl)-1).Draw(t, "age"))
		r := (&Resource{content: &content{body: []byte{0}}}).Renew(ttl, noon)
		if left, real := r.Left(noon.Add(age)), ttl-age; left < real || left >= real+s+ms {
			t.Fatalf("%v of %v after %v", left, ttl, age)
		}
	})
}

// What is sent has what is left of the TTL, for those who take it; a heartbeat
// has no body, and the version that the client knows.
func TestP62_BodiesWithTTL(t *testing.T) {
	raw := one(t, Delta, widget, append(wrapped(t, "a", durationpb.New(90*time.Second)), wire(4, "alias", 100, "future")...))
	r := raw.Start(noon)
	now := noon.Add(2500 * time.Millisecond)
	for _, v := range []Variant{SotW, Delta} {
		for _, form := range []Form{{}, {Timed: true}, {Timed: true, Beats: true}, {Timed: true, OriginVersions: true}} {
			form.Variant = v
			b := Body{Form: form, Type: widget, Version: "v5", Resources: []*Resource{r}, Now: now}
			if form.Beats {
				b.Beats = []*Resource{timed(t, "b", "", 700*time.Millisecond, now)}
			}
			entries := decode(t, &b)
			if v == SotW && !form.Timed {
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
			if left := m.Ttl.AsDuration(); form.Timed && left != 88*time.Second || !form.Timed && m.Ttl != nil {
				t.Errorf("%+v: TTL %v", form, m.Ttl)
			}
			if !form.Beats {
				continue
			}
			beat := entries[1]
			if want = "v5"; v == Delta {
				want = b.Beats[0].Version.String()
			}
			if beat.Name != "b" || beat.Version != want || beat.Resource != nil || beat.Ttl.AsDuration() != 700*time.Millisecond {
				t.Errorf("%+v: heartbeat %v", form, beat)
			}
		}
	}
}

// decode returns the resources of a body, nil for one that is not wrapped.
func decode(t testing.TB, b *Body) (out []*discoveryv3.Resource) {
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

// What has expired is served to nobody, and nobody said that it is gone: not
// even a wildcard's answer that leaves it out did.
func TestP62_Expiry(t *testing.T) {
	for _, wild := range []bool{false, true} {
		t.Run(fmt.Sprint("wildcard ", wild), func(t *testing.T) {
			b := NewBuilder(TypeOf(EndpointType))
			sub := byName("a", "b", "c")
			if wild {
				sub = everything()
			}
			b.Apply(Update{Wildcard: wild, Changed: []*Resource{
				timed(t, "a", "", 10*time.Second, noon), timed(t, "b", "", 5*time.Second, noon), newRes(t, EndpointType, "c", ""),
			}})
			s, _ := b.Snapshot(nil, 1)
			if !s.Timed() || b.NextExpiry() != noon.Add(5*time.Second) {
				t.Fatalf("next %v", b.NextExpiry())
			}
			// A heartbeat of b, and nothing of a.
			if b.Apply(Update{Wildcard: wild, Changed: []*Resource{s.Held("b").Start(noon.Add(4 * time.Second))}}) {
				t.Error("a heartbeat is a change")
			}
			if got := b.NextExpiry(); got != noon.Add(9*time.Second) {
				t.Errorf("next %v", got)
			}
			if n := b.Expire(noon.Add(9*time.Second - 1)); n != 0 {
				t.Errorf("%d expired too early", n)
			}
			if n := b.Expire(noon.Add(10 * time.Second)); n != 2 {
				t.Errorf("%d expired", n)
			}
			s, names := b.Snapshot(s, 2)
			if !slices.Equal(names, []string{"a", "b"}) || s.Len() != 1 || s.Timed() || !b.NextExpiry().IsZero() || len(b.timers.at) != 0 {
				t.Errorf("changed %v, %d left, next %v", names, s.Len(), b.NextExpiry())
			}
			r, is := s.Look(sub, "a")
			if is != Lapsed || s.Held("a") != nil || !r.Outlived(newRes(t, EndpointType, "a", "")) ||
				!r.Outlived(timed(t, "a", "", 11*time.Second, noon)) || r.Outlived(timed(t, "a", "", 10*time.Second, noon)) {
				t.Errorf("a is %d", is)
			}
			var lapsed []string
			for n := range s.Part(wild).Lapsed {
				lapsed = append(lapsed, n)
			}
			if !slices.Equal(lapsed, []string{"a", "b"}) {
				t.Errorf("lapsed %v", lapsed)
			}
			// It returns, and the origin removes the other.
			b.Apply(Update{Wildcard: wild, Changed: []*Resource{timed(t, "a", "", time.Second, noon)}, Removed: []string{"b"}})
			s, names = b.Snapshot(s, 3)
			_, a := s.Look(sub, "a")
			_, bIs := s.Look(sub, "b")
			if a != Present || bIs != Absent || !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("a %d, b %d, changed %v", a, bIs, names)
			}
			if s.lapsed != 0 || b.lapsedWild != 0 {
				t.Errorf("%d %d lapsed", s.lapsed, b.lapsedWild)
			}
		})
	}
}

// A wildcard may bring ever new names that expire: of how many is remembered
// that they did, has a bound.
func TestP62_LapsedNamesAreBounded(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	for i := range maxLapsed + 10 {
		b.Apply(Update{Wildcard: true, Changed: []*Resource{timed(t, fmt.Sprint(i), "", time.Second, noon)}})
		b.Expire(noon.Add(time.Minute))
	}
	if b.entries.Len() != maxLapsed || b.lapsedWild != maxLapsed {
		t.Errorf("%d entries, %d lapsed", b.entries.Len(), b.lapsedWild)
	}
	b.EndWildcard()
	if b.entries.Len() != 0 || b.lapsedWild != 0 {
		t.Errorf("%d entries, %d lapsed", b.entries.Len(), b.lapsedWild)
	}
}

// The names whose TTL was renewed between two snapshots: from the log, and
// without it.
func TestP62_RenewedNames(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	var us []*Resource
	for i := range 10 {
		us = append(us, timed(t, fmt.Sprint(i), "", time.Hour, noon))
	}
	us = append(us, newRes(t, EndpointType, "plain", ""))
	b.Apply(Update{Wildcard: true, Changed: us})
	first, _ := b.Snapshot(nil, 1)
	beat := func(s *Snapshot, names ...string) *Snapshot {
		u := Update{Wildcard: true}
		for _, n := range names {
			u.Changed = append(u.Changed, s.Held(n).Start(noon.Add(time.Duration(s.Gen)*time.Second)))
		}
		b.Apply(u)
		next, changed := b.Snapshot(s, s.Gen+1)
		if len(changed) > 0 || len(next.Changes(s, everything())) > 0 {
			t.Errorf("heartbeats changed %v", changed)
		}
		return next
	}
	second := beat(first, "3", "1")
	third := beat(second, "3", "5")
	for _, c := range []struct {
		from *Snapshot
		sub  *Subscription
		want []string
	}{
		{first, everything(), []string{"1", "3", "5"}},
		{second, everything(), []string{"3", "5"}},
		{first, byName("1", "2", "plain"), []string{"1"}},
		{third, everything(), nil},
		{nil, everything(), nil},
	} {
		if got := third.Renewed(c.from, c.sub); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if got := third.Bytes; got != first.Bytes || third.Retired != first.Retired {
		t.Errorf("heartbeats cost %d bytes, and pin %d", got-first.Bytes, third.Retired-first.Retired)
	}
	last := third
	for range maxLogGens {
		last = beat(last, "7")
	}
	got := last.Renewed(first, everything())
	if len(got) != 10 {
		t.Errorf("beyond the log: %v", got)
	}
	if last.log[0].gen <= 2 {
		t.Error("the log has no bound")
	}
}

// Beside all else a Builder has one timer for each part that has a TTL, and
// none that is over.
func TestP62_TimersAgainstMap(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	plain := newRes(t, EndpointType, "x", "")
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(TypeOf(EndpointType))
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			wild := rapid.Bool().Draw(t, "wild")
			switch rapid.SampledFrom([]string{"put", "plain", "remove", "forget", "end", "pass"}).Draw(t, "what") {
			case "put":
				r := altered(plain, func(c *content) { c.Name = name })
				b.Apply(Update{Wildcard: wild, Changed: []*Resource{r.Renew(time.Duration(rapid.IntRange(1, 9).Draw(t, "ttl"))*time.Second, now)}})
			case "plain":
				r := altered(plain, func(c *content) { c.Name = name })
				b.Apply(Update{Wildcard: wild, Changed: []*Resource{r}})
			case "remove":
				b.Apply(Update{Wildcard: wild, Removed: []string{name}})
			case "forget":
				b.ForgetBut(nil, name)
			case "end":
				b.EndWildcard()
			case "pass":
				now = now.Add(time.Second)
				b.Expire(now)
			}
			var first time.Time
			n := 0
			for _, name := range names {
				e, _ := b.entries.Get(name)
				for _, r := range []*Resource{e.wild, e.named} {
					if !there(r) || r.timing == nil {
						continue
					}
					if n++; first.IsZero() || r.timing.until.Before(first) {
						first = r.timing.until
					}
				}
			}
			if len(b.timers.due) != n || len(b.timers.at) != n || !b.NextExpiry().Equal(first) {
				t.Fatalf("%d timers and %d places for %d; next %v, want %v", len(b.timers.due), len(b.timers.at), n, b.NextExpiry(), first)
			}
		}
	})
}

// What is not to be cached goes with the stream that brought it.
func TestP63_EndOfTheStream(t *testing.T) {
	never := func(name string) *Resource {
		return altered(newRes(t, EndpointType, name, ""), func(c *content) { c.Uncacheable = true })
	}
	b := NewBuilder(TypeOf(EndpointType))
	b.Apply(Update{Version: "1", Changed: []*Resource{never("a"), newRes(t, EndpointType, "b", "")}})
	b.Apply(Update{Version: "1", Wildcard: true, Changed: []*Resource{never("w"), newRes(t, EndpointType, "x", "")}})
	s, _ := b.Snapshot(nil, 1)
	if !slices.Equal(b.Uncacheable(false), []string{"a"}) || !slices.Equal(b.Uncacheable(true), []string{"w"}) || s.Part(true).Uncacheable() != 1 || s.Part(false).Uncacheable() != 1 {
		t.Fatalf("%v %v", b.Uncacheable(false), b.Uncacheable(true))
	}
	if !b.Apply(Update{Ended: true}) || !slices.Equal(b.Uncacheable(true), []string{"w"}) || len(b.Uncacheable(false)) > 0 {
		t.Error("the wrong ones went with the stream of names")
	}
	if !b.Apply(Update{Ended: true, Wildcard: true}) {
		t.Error("nothing went with the wildcard's")
	}
	s, _ = b.Snapshot(s, 2)
	sub := &Subscription{Wildcard: true, Names: NewNameSet("a", "b")}
	for name, want := range map[string]Presence{"a": Lapsed, "b": Present, "w": Lapsed, "x": Present, "y": Absent} {
		if _, is := s.Look(sub, name); is != want {
			t.Errorf("%s is %d, want %d", name, is, want)
		}
	}
	if s.Version != "1" || s.Part(true).Uncacheable()+s.Part(false).Uncacheable() != 0 || b.Apply(Update{Ended: true}) || b.Apply(Update{Ended: true, Wildcard: true}) {
		t.Errorf("version %s", s.Version)
	}
	// The flag is read from the wire, in both variants.
	res := append(wrapped(t, "n", nil), wire(7, wire(1, 1))...)
	if !one(t, Delta, widget, res).Uncacheable || !one(t, SotW, widget, anyWire(wrapperType, res)).Uncacheable {
		t.Error("do_not_cache is not read")
	}
	if one(t, Delta, widget, append(wrapped(t, "n", nil), wire(7, wire(1, 0))...)).Uncacheable {
		t.Error("cache_control alone")
	}
}
