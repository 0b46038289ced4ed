package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestP62_FormOfANode(t *testing.T) {
	for _, c := range []struct {
		features    []string
		sotw, delta ResourceFormat
	}{
		{nil, ResourceFormat{}, ResourceFormat{}},
		{[]string{FeatureTTL}, ResourceFormat{}, ResourceFormat{WithTTL: true, Heartbeats: true}},
		{[]string{"other", FeatureSupportsResourceInSotW}, ResourceFormat{WithTTL: true, Heartbeats: true}, ResourceFormat{}},
		{[]string{FeatureResourceInSotW}, ResourceFormat{WithTTL: true}, ResourceFormat{}},
		{[]string{FeatureResourceInSotW, FeatureTTL}, ResourceFormat{WithTTL: true, Heartbeats: true}, ResourceFormat{WithTTL: true, Heartbeats: true}},
	} {
		node := someNode()
		node.ClientFeatures = c.features
		n, err := new(NodeTable).Intern(marshal(t, node))
		if err != nil {
			t.Fatal(err)
		}
		c.delta.Variant = Delta
		if got := n.ResourceFormat(SotW); got != c.sotw {
			t.Errorf("%v: SotW %+v", c.features, got)
		}
		if got := n.ResourceFormat(Delta); got != c.delta {
			t.Errorf("%v: delta %+v", c.features, got)
		}
	}
}

// ResourceFormat.Same compares only what a client with the format receives (P33).
func TestP33_DifferencesByForm(t *testing.T) {
	take := func(more ...any) *Resource {
		return takeOnly(t, Delta, widget, append(wrappedResource(t, "a", nil), wire(more...)...))
	}
	plain, aliased, cached := take(), take(4, "x"), take(7, wire(1, 1))
	living := plain.RenewTTL(time.Minute, noon)
	other := takeOnly(t, Delta, widget, wire(3, "a", 2, anyWire(widget, wire(1, "a", 2, "other"))))
	for _, c := range []struct {
		what                string
		r                   *Resource
		bare, delta, timely bool
	}{
		{"itself", plain, true, true, true},
		{"an alias", aliased, true, false, false},
		{"cache_control", cached, true, false, false},
		{"a TTL", living, true, true, false},
		{"another body", other, false, false, false},
		{"nothing", nil, false, false, false},
	} {
		for form, want := range map[ResourceFormat]bool{
			{}: c.bare, {Variant: Delta}: c.delta,
			{Variant: Delta, WithTTL: true}: c.timely, {WithTTL: true}: c.timely,
		} {
			if form.Same(plain, c.r) != want || form.Same(c.r, plain) != want {
				t.Errorf("%+v: %s: want %v", form, c.what, want)
			}
		}
	}
}

// The origin's version by which clients know a content stays until the content changes (P61).
func TestP61_GivenVersionStays(t *testing.T) {
	take := func(held *Resource, version, content string, ttl *durationpb.Duration) *Resource {
		m := &discoveryv3.Resource{Name: "a", Version: version, Ttl: ttl, Resource: &anypb.Any{TypeUrl: string(widget), Value: wire(1, "a", 9, content)}}
		r, err := ParseResponse(Delta, wire(4, string(widget), 2, marshal(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(TypeOf(widget), held)
	}
	form := ResourceFormat{Variant: Delta, OriginVersions: true}
	a := take(nil, "1", "x", nil)
	b := take(a, "2", "x", nil)
	c := take(b, "3", "x", durationpb.New(time.Minute))
	d := take(c, "4", "y", nil)
	for i, got := range []string{form.Version(a), form.Version(b), form.Version(c), form.Version(d), form.Version(take(nil, "", "x", nil))} {
		if want := []string{"1", "1", "1", "4", a.Version.String()}[i]; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	if c.OriginVersion != "3" {
		t.Errorf("the version for the origin is %s", c.OriginVersion)
	}
	if (ResourceFormat{Variant: Delta}).Version(d) != d.Version.String() {
		t.Error("without OriginVersions: not the content's version")
	}
}
