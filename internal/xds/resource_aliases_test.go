package xds

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// Names are compared byte for byte, also in their context parameters (P28).
func TestP28_NamesAreOpaque(t *testing.T) {
	const one, turned = "xdstp://o/T/c/x?a=1&b=2", "xdstp://o/T/c/x?b=2&a=1"
	r := resourceWithAliases(t, widget, turned, "1", "xdstp://o/T/y?z&y", "plain")
	if r.Name != turned {
		t.Errorf("the name is %q", r.Name)
	}
	if want := []string{"plain", "xdstp://o/T/c/*?b=2&a=1", "xdstp://o/T/y?z&y"}; !slices.Equal(r.AliasesAndGlob(), want) {
		t.Errorf("the aliases are %v, want %v", r.AliasesAndGlob(), want)
	}
	if r.RequestedBy(NewNameSet(one)) || !r.RequestedBy(NewNameSet(turned)) {
		t.Error("the order of the parameters is ignored, or the own name does not match")
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
		"xdstp://a/T/foo/*":             "", // is a glob itself
		"xdstp://a/T/foo/*?a=1":         "",
		"xdstp://a/T/foo/*x":            "xdstp://a/T/foo/*",
		"xdstp://a/T":                   "",
		"xdstp://a":                     "",
		"xdstp://":                      "",
		"route/host":                    "",
	} {
		if got := Glob(name); got != want {
			t.Errorf("the glob of %q is %q, want %q", name, got, want)
		}
	}
}

// An answer that the origin has no resource for an alias is passed on unchanged (P18).
func TestP18_UnresolvedIsPassedOnAsItCame(t *testing.T) {
	for _, in := range []*discoveryv3.Resource{
		{Name: "r/cannot", Aliases: []string{"r/a", "r/b"}, Version: "7"},
		{Name: "r/a", Aliases: []string{"r/a"}},
	} {
		raw := parsedResource(t, widget, in)
		if raw.HasBody() || !raw.Unresolved(nil) {
			t.Fatalf("%v is not unresolved", in)
		}
		if _, ok := raw.TakeUnresolved(NewNameSet("r/z")); ok {
			t.Error("an answer for names that were not requested")
		}
		w, ok := raw.TakeUnresolved(NewNameSet("r/a", "r/z"))
		if !ok || !slices.Equal(w.Names, []string{"r/a"}) {
			t.Fatalf("%+v", w)
		}
		b := ResponseBody{ResourceFormat: ResourceFormat{Variant: Delta}, Type: widget, Resources: []*Resource{w.Resource}}
		wire := b.Encode()
		got := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(wire, got); err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != 1 || !proto.Equal(got.Resources[0], in) {
			t.Errorf("%v is sent as %v", in, got.Resources)
		}
		if cap(wire) != len(wire) {
			t.Errorf("%d bytes in a slice of %d", len(wire), cap(wire))
		}
	}
	held := resourceWithAliases(t, widget, "r/a", "1", "r/b")
	held.OriginVersion = "7"
	for want, in := range map[bool]*discoveryv3.Resource{
		true:  {Name: "r/a", Aliases: []string{"r/b"}, Version: "8"},
		false: {Name: "r/a", Aliases: []string{"r/b"}, Version: "7"}, // a heartbeat
	} {
		if parsedResource(t, widget, in).Unresolved(held) != want {
			t.Errorf("%v beside a resource of version 7", in)
		}
	}
}
