package xds

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Names are compared byte for byte, also in their context parameters.
func TestP28_NamesAreOpaque(t *testing.T) {
	const one, turned = "xdstp://o/T/c/x?a=1&b=2", "xdstp://o/T/c/x?b=2&a=1"
	r := goesBy(t, widget, turned, "1", "xdstp://o/T/y?z&y", "plain")
	if r.Name != turned {
		t.Errorf("its name is %q", r.Name)
	}
	if want := []string{"plain", "xdstp://o/T/c/*?b=2&a=1", "xdstp://o/T/y?z&y"}; !slices.Equal(r.Handles(), want) {
		t.Errorf("its handles are %v, want %v", r.Handles(), want)
	}
	if r.AskedBy(NewNameSet(one)) || !r.AskedBy(NewNameSet(turned)) {
		t.Error("another order of the parameters is the same name")
	}
}

func TestP28_GlobOfAName(t *testing.T) {
	for name, want := range map[string]string{
		"xdstp://a/T/foo/bar":           "xdstp://a/T/foo/*",
		"xdstp://a/T/foo/bar?a=1&b=2":   "xdstp://a/T/foo/*?a=1&b=2",
		"xdstp://a/T/foo/bar?p=x/y":     "xdstp://a/T/foo/*?p=x/y",
		"xdstp://a/T/foo/bar#entry=x/y": "xdstp://a/T/foo/*#entry=x/y",
		"xdstp:///T/bar":                "xdstp:///T/*",
		"xdstp://a/T/foo/":              "xdstp://a/T/foo/*",
		"xdstp://a/T/foo/*":             "", // is one itself
		"xdstp://a/T/foo/*?a=1":         "",
		"xdstp://a/T/foo/*x":            "xdstp://a/T/foo/*",
		"xdstp://a/T":                   "",
		"xdstp://a":                     "",
		"xdstp://":                      "",
		"route/host":                    "",
	} {
		if got := Glob(name); got != want {
			t.Errorf("%q falls under %q, want %q", name, got, want)
		}
	}
}

// What could not be resolved is passed on as it came.
func TestP18_UnresolvedIsPassedOnAsItCame(t *testing.T) {
	for _, in := range []*discoveryv3.Resource{
		{Name: "r/cannot", Aliases: []string{"r/a", "r/b"}, Version: "7"},
		{Name: "r/a", Aliases: []string{"r/a"}},
	} {
		raw := cutOf(t, widget, in)
		if raw.HasBody() || !raw.Unresolved(nil) {
			t.Fatalf("%v is something else", in)
		}
		if _, ok := raw.TakeUnresolved(NewNameSet("r/z")); ok {
			t.Error("nobody asked for it")
		}
		w, ok := raw.TakeUnresolved(NewNameSet("r/a", "r/z"))
		if !ok || !slices.Equal(w.Names, []string{"r/a"}) {
			t.Fatalf("%+v", w)
		}
		b := Body{Form: Form{Variant: Delta}, Type: widget, Resources: []*Resource{w.Resource}}
		wire := b.Encode()
		got := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(wire, got); err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != 1 || !proto.Equal(got.Resources[0], in) {
			t.Errorf("%v is sent as %v", in, got.Resources)
		}
		if cap(wire) != len(wire) {
			t.Errorf("%d bytes, made room for %d", len(wire), cap(wire))
		}
	}
	held := goesBy(t, widget, "r/a", "1", "r/b")
	held.OriginVersion = "7"
	for want, in := range map[bool]*discoveryv3.Resource{
		true:  {Name: "r/a", Aliases: []string{"r/b"}, Version: "8"},
		false: {Name: "r/a", Aliases: []string{"r/b"}, Version: "7"}, // a heartbeat
	} {
		if cutOf(t, widget, in).Unresolved(held) != want {
			t.Errorf("%v beside a resource of version 7", in)
		}
	}
}

// cutOf is a resource as it is cut from the response of a delta origin.
func cutOf(t testing.TB, typ TypeURL, r *discoveryv3.Resource) *Raw {
	t.Helper()
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseResponse(Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	return &got.Resources[0]
}

// goesBy makes a resource with aliases.
func goesBy(t testing.TB, typ TypeURL, name, content string, aliases ...string) *Resource {
	t.Helper()
	body := &anypb.Any{TypeUrl: string(typ), Value: wire(1, name, 2, content)}
	return cutOf(t, typ, &discoveryv3.Resource{Name: name, Aliases: aliases, Resource: body}).Take(TypeOf(typ), nil)
}
