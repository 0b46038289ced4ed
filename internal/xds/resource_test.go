package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

// Versions must never change: clients send them back after years, to other builds (P61). Another
// program computed these values. If a change of the code breaks this test, the change is wrong.
func TestP61_GoldenVersions(t *testing.T) {
	long := strings.Repeat("n", 200)
	for _, c := range []struct {
		what            string
		url             TypeURL
		name            string
		value           []byte
		aliases         []string
		version, member string
	}{
		{"a cluster", ClusterType, "c1", wire(1, "c1"), nil,
			"c0e43290248270c8f8b5538488889df9", "7c35c856ebbc8dbcee2a27ea8af4a902"},
		{"another content", ClusterType, "c1", wire(1, "c1", 2, 3), nil,
			"bd6ab20acff2c0557935d9dbc1652a1c", "3963488adf4e7e04cbbab38a055e15a9"},
		{"a load assignment", EndpointType, "e1", wire(1, "e1"), nil,
			"5caab8aa86018ce1a8cc5944dcaea386", "567f2c7c4367a728bdf0f71f6ed9ce58"},
		{"aliases", VHostType, "v1", wire(1, "v1"), []string{"a.example", "b.example"},
			"f4a99a8b94ce84a4a3918c512f126192", "e97037fa45bfec18d6b3716da09559f6"},
		{"no aliases", VHostType, "v1", wire(1, "v1"), nil,
			"7e3e4729e52c92eef3e8d152e62975d2", "4077c9fb5c9552b6b009fa4edc35d693"},
		{"an unknown type", widget, "größe", wire(1, "größe"), nil,
			"21348ad8644a8f40088d566732c8e0ae", "dc905119e08ac3f48b52ad16ae69b3db"},
		{"a length of two bytes", widget, long, wire(1, long), nil,
			"e674e8ba82c748b72de7dd55b33c8aad", "63728141a58950b33f78e3bea6a163f8"},
	} {
		resource := wire(3, c.name, 1, "the origin's", 2, anyWire(c.url, c.value))
		for _, a := range c.aliases {
			resource = append(resource, wire(4, a)...)
		}
		r := takeOnly(t, Delta, c.url, resource)
		if got := r.Version.String(); got != c.version {
			t.Errorf("%s: version %s, want %s", c.what, got, c.version)
		}
		if got := r.Member.String(); got != c.member {
			t.Errorf("%s: member %s, want %s", c.what, got, c.member)
		}

		// The same hash without contentVersion: url, value and aliases, each after its length.
		h := sha256.New()
		for _, p := range append([]string{string(c.url), string(c.value)}, c.aliases...) {
			if n := len(p); n < 128 {
				h.Write([]byte{byte(n)})
			} else {
				h.Write([]byte{byte(n&127 | 128), byte(n >> 7)})
			}
			h.Write([]byte(p))
		}
		if got := hex.EncodeToString(h.Sum(nil)[:16]); got != c.version {
			t.Errorf("%s: computed in the test: %s, want %s", c.what, got, c.version)
		}
		if len(c.aliases) > 0 {
			continue
		}
		// The version does not depend on how the resource was encoded.
		for how, other := range map[string]*Resource{
			"in SotW": takeOnly(t, SotW, c.url, anyWire(c.url, c.value)),
			"wrapped": takeOnly(t, SotW, c.url, anyWire(wrapperType, resource)),
			"Any written the other way round": takeOnly(t, Delta, c.url,
				wire(2, wire(2, c.value, 1, string(c.url)), 3, c.name)),
			"a tag longer than needed": takeOnly(t, Delta, c.url,
				append(wire(3, c.name), append([]byte{0x92, 0x00}, wire(2, anyWire(c.url, c.value))[1:]...)...)),
		} {
			if other.Version != r.Version || other.Name != c.name || other.TypeURL() != c.url {
				t.Errorf("%s %s: %s %s %s", c.what, how, other.TypeURL(), other.Name, other.Version)
			}
		}
	}
}

func TestP61_WhatVersionsAreMadeOf(t *testing.T) {
	body := wire(2, anyWire(VHostType, wire(1, "v")))
	resource := func(more ...any) *Resource {
		return takeOnly(t, Delta, VHostType, append(wire(3, "v"), append(bytes.Clone(body), wire(more...)...)...))
	}
	plain := resource()
	aliased := resource(4, "a", 4, "b")
	if turned := resource(4, "b", 4, "a"); turned.Version != aliased.Version || !slices.Equal(turned.Aliases, []string{"a", "b"}) {
		t.Error("the version depends on the order of aliases")
	}
	if aliased.Version == plain.Version || resource(4, "ab").Version == aliased.Version {
		t.Error("the version does not depend on aliases")
	}
	ttl := resource(6, marshal(t, durationpb.New(5e9)))
	if ttl.Version != plain.Version {
		t.Error("the TTL is part of the version")
	}
	if ttl.Same(plain) || plain.Same(ttl) {
		t.Error("a resource with a TTL is the same as one without")
	}
	if v := resource(1, "7"); v.Version != plain.Version || !v.Same(plain) || v.OriginVersion != "7" {
		t.Errorf("the origin's version %q changes the version, or is lost", v.OriginVersion)
	}
	if resource(7, wire(1, 1)).Version != plain.Version {
		t.Error("cache_control is part of the version")
	}
	if !plain.Same(plain) || plain.Same(nil) || (*Resource)(nil).Same(plain) || !(*Resource)(nil).Same(nil) {
		t.Error("Same and nil")
	}
}

// Version.Add and Sub compute sums mod 2^128, so their order does not matter.
func TestP61_SumsOfVersions(t *testing.T) {
	mod := new(big.Int).Lsh(big.NewInt(1), 128)
	number := func(v Version) *big.Int { return new(big.Int).SetBytes(v[:]) }
	versions := rapid.Custom(func(t *rapid.T) (v Version) {
		copy(v[:], rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 0xff})), 16, 16).Draw(t, "bytes"))
		return v
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := versions.Draw(t, "a"), versions.Draw(t, "b")
		if got, want := number(a.Add(b)), new(big.Int).Add(number(a), number(b)); got.Cmp(want.Mod(want, mod)) != 0 {
			t.Fatalf("%s + %s = %x, want %x", a, b, got, want)
		}
		if got, want := number(a.Sub(b)), new(big.Int).Sub(number(a), number(b)); got.Cmp(want.Mod(want, mod)) != 0 {
			t.Fatalf("%s - %s = %x, want %x", a, b, got, want)
		}
		if a.Add(b).Sub(b) != a || a.Sub(b).Add(b) != a {
			t.Fatal("Add and Sub are not inverse")
		}
	})
}

func TestP37_Follows(t *testing.T) {
	eds := &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	for _, c := range []struct {
		what    string
		cluster *clusterv3.Cluster
		want    string
	}{
		{"service_name", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: eds,
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s", EdsConfig: &corev3.ConfigSource{}}}, "s"},
		{"its own name", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: eds,
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{}}}, "c"},
		{"no config", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: eds}, "c"},
		{"DNS", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}}, ""},
		{"static", &clusterv3.Cluster{Name: "c"}, ""},
		{"a type of its own", &clusterv3.Cluster{Name: "c",
			ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "x"}}}, ""},
	} {
		r := takeOnly(t, SotW, ClusterType, anyWire(ClusterType, marshal(t, c.cluster)))
		if r.Follows != c.want {
			t.Errorf("%s: followed by %q, want %q", c.what, r.Follows, c.want)
		}
	}
	// The same bytes with another type are no cluster.
	if r := takeOnly(t, SotW, widget, anyWire(widget, marshal(t, &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: eds}))); r.Follows != "" {
		t.Errorf("a widget is followed by %q", r.Follows)
	}
}

// Field 1 is the name of a resource of an unknown type if it may be one. Several resources without
// a name, or with equal names, are told apart by their place (P3).
func TestP3_NamesOfUnknownTypes(t *testing.T) {
	entry := wire(1, "web.default.svc", 2, wire(1, "10.0.0.1")) // of a map<string, message>
	wrapped := func(fields ...any) []byte {
		return anyWire(wrapperType, wire(append(fields, 2, anyWire(widget, wire(2, "x")))...))
	}
	of := func(fields ...any) []byte { return anyWire(widget, wire(fields...)) }
	for _, c := range []struct {
		what      string
		resources [][]byte
		want      []string
		lacks     bool
	}{
		{"field 1", [][]byte{of(7, 1, 1, "w", 9, "x")}, []string{"w"}, false},
		{"names", [][]byte{of(1, "b"), of(1, "größe a")}, []string{"b", "größe a"}, false},
		{"no field 1", [][]byte{of(2, "w")}, []string{""}, true},
		{"no field at all", [][]byte{of()}, []string{""}, true},
		{"a number", [][]byte{of(1, 5)}, []string{""}, true},
		{"empty", [][]byte{of(1, "")}, []string{""}, true},
		{"invalid UTF-8", [][]byte{of(1, "\xff")}, []string{""}, true},
		{"a map", [][]byte{of(1, entry, 1, entry)}, []string{""}, true},
		{"a control character of C1", [][]byte{of(1, "a\u0085")}, []string{""}, true},
		{"equal names", [][]byte{of(1, "a", 2, "x"), of(1, "b"), of(1, "a")}, []string{nameOfPlace(0), nameOfPlace(1), nameOfPlace(2)}, true},
		{"one without a name", [][]byte{of(1, "a"), of(1, 7)}, []string{nameOfPlace(0), nameOfPlace(1)}, true},
		{"equal resources", [][]byte{of(1, 7), of(1, 7)}, []string{nameOfPlace(0), nameOfPlace(1)}, true},
		{"wrapped, named", [][]byte{wrapped(3, "w")}, []string{"w"}, false},
		{"wrapped, without a name", [][]byte{wrapped()}, []string{""}, false},
		{"wrapped, one without a name", [][]byte{wrapped(3, "w"), wrapped()}, []string{"w", ""}, false},
		{"wrapped and not", [][]byte{wrapped(3, "w"), of(1, "v")}, []string{"w", "v"}, false},
	} {
		msg := wire(4, string(widget), 5, "n")
		for _, r := range c.resources {
			msg = append(msg, wire(2, r)...)
		}
		r, err := ParseResponse(SotW, msg)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var names []string
		for _, res := range r.Resources {
			names = append(names, res.Name)
		}
		if !slices.Equal(names, c.want) || r.LacksNames != c.lacks {
			t.Errorf("%s: names %q, lacks names: %v; want %q, %v", c.what, names, r.LacksNames, c.want, c.lacks)
		}
	}
	if nameOfPlace(9) >= nameOfPlace(10) || !IsPlace(nameOfPlace(0)) || IsPlace("place 1") || IsPlace("") {
		t.Errorf("%q", nameOfPlace(9))
	}
}

// In delta and in wrappers, an unknown type may have one resource without a name (P3). Two are a
// fault (P18).
func TestP3_OneResourceWithoutAName(t *testing.T) {
	r := takeOnly(t, Delta, widget, wire(1, "7", 2, anyWire(widget, wire(2, "x"))))
	if r.Name != "" || r.OriginVersion != "7" || !r.HasBody() {
		t.Errorf("%+v", r)
	}
	stored, err := ReadStored(TypeOf(widget), r.AppendStored(nil))
	if err != nil || !stored.Same(r) {
		t.Errorf("stored: %+v, %v", stored, err)
	}
	nameless := wire(2, anyWire(widget, wire(2, "x")))
	for v, msg := range map[Variant][]byte{
		Delta: wire(4, string(widget), 2, nameless, 2, nameless),
		SotW:  wire(4, string(widget), 2, anyWire(wrapperType, nameless), 2, anyWire(wrapperType, nameless)),
	} {
		_, err := ParseResponse(v, msg)
		wantError(t, v.String(), err, ErrNameless)
	}
	if r, err := ParseResponse(Delta, wire(4, string(widget), 6, "")); err != nil || !slices.Equal(r.Removed, []string{""}) {
		t.Errorf("removed: %+v, %v", r, err)
	}
}

// A resource that is told apart by its place has no name that a wrapper could give, so it is never
// wrapped (P3). A client that unwraps resources accepts both.
func TestP3_PlacesAreNotWrapped(t *testing.T) {
	of := func(s string) []byte { return anyWire(widget, wire(1, 7, 2, s)) }
	r, err := ParseResponse(SotW, wire(4, string(widget), 2, of("x"), 2, of("y")))
	if err != nil {
		t.Fatal(err)
	}
	b := ResponseBody{ResourceFormat: ResourceFormat{WithTTL: true}, Type: widget, Version: "1"}
	for i := range r.Resources {
		b.Resources = append(b.Resources, r.Resources[i].Take(TypeOf(widget), nil))
	}
	out := b.Encode()
	got := new(discoveryv3.DiscoveryResponse)
	unmarshal(t, out, got)
	if len(out) != b.Size() || len(got.Resources) != 2 || got.Resources[0].TypeUrl != string(widget) || got.Resources[1].TypeUrl != string(widget) {
		t.Errorf("%d bytes, want %d: %v", len(out), b.Size(), got)
	}
}

// The fields of a Resource and the bytes of its Any are sent as they came, even in an unusual
// encoding (P39).
func TestP39_BytesPassThrough(t *testing.T) {
	oddAny := append(wire(77, "future", 2, wire(1, "v")), append(wire(1, string(VHostType)), 0xf8, 0x07, 0x81, 0x00)...)
	extra := slices.Concat(
		wire(4, "b", 4, "a"), wire(7, wire(1, 1)),
		wire(100, "unknown", 101, 300), []byte{0xab, 0x06, 0x08, 0x01, 0xac, 0x06}, // a group
	)
	r := takeOnly(t, Delta, VHostType, slices.Concat(wire(100, "first", 1, "9"), wire(3, "v", 2, oddAny), extra))
	extra = slices.Concat(wire(100, "first"), extra)
	if want := extra; !bytes.Equal(r.extra, want) {
		t.Errorf("extra\n%x, want\n%x", r.extra, want)
	}
	if !bytes.Equal(r.Any(), oddAny) {
		t.Errorf("Any\n%x, want\n%x", r.Any(), oddAny)
	}
	if r.TypeURL() != VHostType || r.OriginVersion != "9" {
		t.Errorf("type %s, origin's version %q", r.TypeURL(), r.OriginVersion)
	}

	body := (&ResponseBody{ResourceFormat: ResourceFormat{Variant: Delta}, Type: VHostType, Resources: []*Resource{r}}).Encode()
	got := fieldsOf(t, body, respResources)
	if len(got) != 1 {
		t.Fatalf("%d resources", len(got))
	}
	if want := slices.Concat(wire(3, "v", 1, r.Version.String(), 2, oddAny), r.extra); !bytes.Equal(got[0], want) {
		t.Errorf("sent\n%x, want\n%x", got[0], want)
	}
	body = (&ResponseBody{ResourceFormat: ResourceFormat{Variant: SotW}, Type: VHostType, Resources: []*Resource{r}}).Encode()
	if got = fieldsOf(t, body, respResources); len(got) != 1 || !bytes.Equal(got[0], oddAny) {
		t.Errorf("sent in SotW: %x", got)
	}
	if r.Size() < int64(len(oddAny)+len(extra)) {
		t.Errorf("size %d", r.Size())
	}
}

// Take returns the held resource if it is equal, and copies what it keeps.
func TestTakeCopiesOnlyWhatChanged(t *testing.T) {
	typ := TypeOf(VHostType)
	parse := func(version, content string) ([]byte, *ParsedResource) {
		msg := wire(4, string(VHostType), 2, wire(3, "v", 1, version, 2, anyWire(VHostType, wire(1, "v", 9, content)), 4, "a"))
		r, err := ParseResponse(Delta, msg)
		if err != nil {
			t.Fatal(err)
		}
		return msg, &r.Resources[0]
	}
	msg, raw := parse("1", "x")
	held := raw.Take(typ, nil)
	want := bytes.Clone(held.Any())
	clear(msg) // gRPC reuses the buffer
	if !bytes.Equal(held.Any(), want) || held.Name != "v" || held.Aliases[0] != "a" || held.OriginVersion != "1" {
		t.Error("the resource aliases the message")
	}
	_, raw = parse("1", "x")
	if raw.Take(typ, held) != held {
		t.Error("an equal resource was copied")
	}
	msg, raw = parse("2", "x")
	renamed := raw.Take(typ, held)
	clear(msg)
	if renamed == held || renamed.OriginVersion != "2" || held.OriginVersion != "1" || &renamed.body[0] != &held.body[0] || !renamed.Same(held) {
		t.Error("with a new version of the origin: the bytes were copied, or the version is wrong")
	}
	_, raw = parse("2", "y")
	if changed := raw.Take(typ, held); changed.Same(held) || changed.Version == held.Version {
		t.Error("Take returned the earlier resource")
	}
}

func TestNewResource(t *testing.T) {
	in := anyWire(ClusterType, marshal(t, &clusterv3.Cluster{Name: "c"}))
	r, err := NewResource(TypeOf(ClusterType), "c", in)
	if err != nil {
		t.Fatal(err)
	}
	if same := takeOnly(t, SotW, ClusterType, in); !r.Same(same) || r.Version != same.Version {
		t.Error("NewResource and ParseResponse differ")
	}
	clear(in)
	m := new(anypb.Any)
	unmarshal(t, r.Any(), m)
	if m.TypeUrl != string(ClusterType) {
		t.Error("the resource aliases its input")
	}
	_, err = NewResource(TypeOf(EndpointType), "c", r.Any())
	wantError(t, "of another type", err, ErrOtherType)
	_, err = NewResource(TypeOf(ClusterType), "", r.Any())
	wantError(t, "nameless", err, ErrNameless)
	_, err = NewResource(TypeOf(ClusterType), "c", []byte{0x0a, 9})
	wantError(t, "unreadable", err, ErrUnreadable)
}
