package xds

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// storeAndRead encodes r for the disk and reads it back.
func storeAndRead(t interface {
	Helper()
	Fatalf(string, ...any)
}, typ Type, r *Resource) *Resource {
	t.Helper()
	prefix := []byte("before")
	wire := r.AppendStored(slices.Clone(prefix))
	if !bytes.HasPrefix(wire, prefix) {
		t.Fatalf("AppendStored changed what was in the slice")
	}
	buf := wire[len(prefix):]
	back, err := ReadStored(typ, buf)
	if err != nil {
		t.Fatalf("ReadStored: %v", err)
	}
	for i := range buf { // the result must not alias buf
		buf[i] = 0xff
	}
	return back
}

// randomResource returns a resource as an origin may send it.
func randomResource(t *rapid.T) (Type, *Resource) {
	typ := TypeOf(rapid.SampledFrom([]TypeURL{ClusterType, VHostType, EndpointType, "example.com/of.Nobody"}).Draw(t, "type"))
	name := rapid.SampledFrom([]string{
		"a", "é/ü", "xdstp://auth/envoy.config.cluster.v3.Cluster/a/b?z=1&a=2", "xdstp://auth/t/x?a=2&z=1#f", "*", " ",
	}).Draw(t, "name")
	w := appendString(nil, resourceName, name)
	if v := rapid.SampledFrom([]string{"", "1", "v/ü"}).Draw(t, "version"); v != "" {
		w = appendString(w, resourceVersion, v)
	}
	field := func(b []byte, num protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
	}
	value := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value")
	anyWire := field(appendString(nil, anyTypeURL, string(typ.URL)), anyValue, value)
	if rapid.Bool().Draw(t, "odd Any") { // protobuf allows any order of fields, and unknown fields
		anyWire = field(appendString(field(nil, 9, []byte("x")), anyTypeURL, string(typ.URL)), anyValue, value)
	}
	if rapid.Bool().Draw(t, "long tag") {
		w = append(w, 0x92, 0x80, 0x00) // field 2 with a longer tag than needed
		w = protowire.AppendBytes(w, anyWire)
	} else {
		w = field(w, resourceBody, anyWire)
	}
	for _, a := range rapid.SliceOfN(rapid.SampledFrom([]string{"b", "a", "xdstp://x/t/c?b&a", "b"}), 0, 4).Draw(t, "aliases") {
		w = appendString(w, resourceAliases, a)
	}
	if rapid.Bool().Draw(t, "cache_control") {
		w = field(w, 7, nil)
	}
	if rapid.Bool().Draw(t, "unknown") {
		w = field(w, 1000, []byte{0xff, 0})
	}
	raw, err := parseDeltaResource(typ, w)
	if err != nil {
		t.Fatal(err)
	}
	r := raw.Take(typ, nil)
	switch rapid.IntRange(0, 3).Draw(t, "given") {
	case 0: // clients know it by an earlier version
		again := *r
		again.GivenVersion = "older"
		r = &again
	case 1:
		again := *r
		again.GivenVersion = ""
		r = &again
	}
	return typ, r
}

// A resource read from disk equals the stored one: its bytes (P39), its name (P28), its aliases
// (P26) and its versions (P61).
func TestP39_StoredResourcesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ, r := randomResource(t)
		back := storeAndRead(t, typ, r)
		switch {
		case !back.Same(r) || !r.Same(back):
			t.Fatalf("not the same: %+v, %+v", r, back)
		case back.Version != r.Version || back.OriginVersion != r.OriginVersion || back.GivenVersion != r.GivenVersion:
			t.Fatalf("versions %v %q %q, and were %v %q %q", back.Version, back.OriginVersion, back.GivenVersion, r.Version, r.OriginVersion, r.GivenVersion)
		case back.Name != r.Name:
			t.Fatalf("name %q, and was %q", back.Name, r.Name)
		case !slices.Equal(back.Aliases, r.Aliases) || !slices.Equal(back.AliasesAndGlob(), r.AliasesAndGlob()):
			t.Fatalf("aliases %q, with glob %q, and were %q, %q", back.Aliases, back.AliasesAndGlob(), r.Aliases, r.AliasesAndGlob())
		case !bytes.Equal(back.body, r.body) || !bytes.Equal(back.extra, r.extra) || back.Follows != r.Follows:
			t.Fatalf("bytes %x %x, and were %x %x", back.body, back.extra, r.body, r.extra)
		}
		for _, f := range []ResourceFormat{
			{Variant: SotW}, {Variant: SotW, WithTTL: true, Heartbeats: true}, {Variant: Delta}, {Variant: Delta, OriginVersions: true},
			{Variant: Delta, OriginVersions: true, SeveralOrigins: true, WithTTL: true},
		} {
			body := func(r *Resource) []byte {
				b := ResponseBody{ResourceFormat: f, Type: typ.URL, Version: "v", Resources: []*Resource{r}}
				return b.Encode()
			}
			if !bytes.Equal(body(r), body(back)) {
				t.Fatalf("a client with %+v gets different bytes", f)
			}
		}
	})
}

// ReadStored refuses what AppendStored cannot have written.
func TestReadStoredRefuses(t *testing.T) {
	typ := TypeOf(ClusterType)
	field := func(num protowire.Number, v ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), v)
	}
	body := field(resourceBody, appendString(nil, anyTypeURL, string(ClusterType))...)
	named := appendString(nil, resourceName, "a")
	good := slices.Concat(named, body)
	for name, wire := range map[string][]byte{
		"nothing":        nil,
		"no resource":    field(storedGiven, 'v'),
		"two resources":  slices.Concat(field(storedResource, good...), field(storedResource, good...)),
		"cut":            field(storedResource, good...)[:len(good)],
		"unknown field":  slices.Concat(field(storedResource, good...), field(9, 'x')),
		"a number":       slices.Concat(field(storedResource, good...), []byte{0x10, 0x01}),
		"nameless":       field(storedResource, body...),
		"long name":      field(storedResource, slices.Concat(appendString(nil, resourceName, string(bytes.Repeat([]byte("n"), MaxNameBytes+1))), body)...),
		"name no UTF-8":  field(storedResource, slices.Concat(field(resourceName, 0xff), body)...),
		"given no UTF-8": slices.Concat(field(storedResource, good...), field(storedGiven, 0xff)),
		"two given":      slices.Concat(field(storedResource, good...), field(storedGiven), field(storedGiven)),
		"no body":        field(storedResource, named...),
		"another type":   field(storedResource, slices.Concat(named, field(resourceBody, appendString(nil, anyTypeURL, string(EndpointType))...))...),
		"a TTL":          field(storedResource, slices.Concat(good, field(resourceTTL, 0x08, 0x01))...),
		"do_not_cache":   field(storedResource, slices.Concat(good, field(7, 0x08, 0x01))...),
	} {
		if r, err := ReadStored(typ, wire); err == nil || r != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := ReadStored(typ, field(storedResource, good...)); err != nil {
		t.Errorf("a valid resource is refused: %v", err)
	}
}

// A resource with a TTL, or one that must not be cached, is not storable.
func TestStorable(t *testing.T) {
	typ := TypeOf(ClusterType)
	body := protowire.AppendBytes(protowire.AppendTag(nil, resourceBody, protowire.BytesType), appendString(nil, anyTypeURL, string(ClusterType)))
	for extra, want := range map[string]bool{"": true, "\x3a\x02\x08\x01": false, "\x32\x02\x08\x01": false, "\x3a\x02\x08\x00": true} {
		raw, err := parseDeltaResource(typ, slices.Concat(appendString(nil, resourceName, "a"), body, []byte(extra)))
		if err != nil {
			t.Fatal(err)
		}
		if got := raw.Take(typ, nil).Storable(); got != want {
			t.Errorf("with %x: storable is %t", extra, got)
		}
	}
	if NewPlaceholder("a").Storable() || (*Resource)(nil).Storable() {
		t.Error("a nil Resource or a placeholder is storable")
	}
}

func FuzzReadStored(f *testing.F) {
	typ := TypeOf(ClusterType)
	r, err := NewResource(typ, "xdstp://a/b/c?b&a", appendString(nil, anyTypeURL, string(ClusterType)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.AppendStored(nil))
	f.Add(r.WithoutAlias(r.AliasesAndGlob()[0]).AppendStored(nil))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r, err := ReadStored(typ, wire)
		if err != nil {
			return
		}
		if !r.Storable() || r.TypeURL() != typ.URL {
			t.Fatalf("%+v", r)
		}
		if back := storeAndRead(t, typ, r); !back.Same(r) || back.GivenVersion != r.GivenVersion || !slices.Equal(back.AliasesAndGlob(), r.AliasesAndGlob()) {
			t.Fatalf("%+v, and then %+v", r, back)
		}
	})
}
