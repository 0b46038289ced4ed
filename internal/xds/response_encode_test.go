package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

// A body decodes to what it was made from and has exactly Size bytes. A nonce can be appended.
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
		b := ResponseBody{
			ResourceFormat: ResourceFormat{WithTTL: rapid.Bool().Draw(t, "timed")}, Type: widget, Version: text.Draw(t, "version"), Identifier: text.Draw(t, "identifier"),
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
			if b.WithTTL && r.TTL() > 0 {
				m.Ttl = durationpb.New(r.TTL())
			}
			if b.WithTTL {
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
			if m, ok := got.(*discoveryv3.DiscoveryResponse); ok && b.WithTTL {
				for i, a := range m.Resources { // the order of fields does not matter
					inner := new(discoveryv3.Resource)
					if err := a.UnmarshalTo(inner); err != nil {
						t.Fatal(err)
					}
					m.Resources[i], _ = anypb.New(inner) // no error: the message was just decoded
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

// Two nonces appended to one shared body do not overwrite each other (P10).
func TestP10_NoncesDoNotShare(t *testing.T) {
	body := (&ResponseBody{Type: ClusterType, Resources: []*Resource{newRes(t, ClusterType, "c", "")}}).Encode()
	a, b := AppendNonce(body, []byte("1")), AppendNonce(body, []byte("2"))
	ma, mb := new(discoveryv3.DiscoveryResponse), new(discoveryv3.DiscoveryResponse)
	unmarshal(t, a, ma)
	unmarshal(t, b, mb)
	if ma.Nonce != "1" || mb.Nonce != "2" {
		t.Errorf("nonces %q and %q", ma.Nonce, mb.Nonce)
	}
}

// Split keeps all elements in order, resources before removals. Each body is within the limit or has
// one element. A SotW body is not cut.
func TestP38_Split(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &ResponseBody{ResourceFormat: ResourceFormat{Variant: Delta}, Type: widget, Version: "v", Identifier: "id"}
		resource := func(what string, i int) *Resource {
			name := fmt.Sprint(what, i)
			r, err := NewResource(TypeOf(widget), name, wire(1, string(widget), 2, wire(1, name, 9, make([]byte, rapid.IntRange(0, 300).Draw(t, "bytes")))))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		count := rapid.IntRange(0, 8)
		for i := range count.Draw(t, "resources") {
			b.Resources = append(b.Resources, resource("r", i))
		}
		for i := range count.Draw(t, "heartbeats") {
			b.Heartbeats = append(b.Heartbeats, resource("h", i).RenewTTL(time.Minute, time.Unix(1e9, 0)))
		}
		for i := range count.Draw(t, "removed") {
			b.Removed = append(b.Removed, fmt.Sprint("gone", i))
		}
		limit := rapid.IntRange(1, 1500).Draw(t, "limit")
		parts := b.Split(limit)
		all := new(ResponseBody)
		for i, p := range parts {
			elements := len(p.Resources) + len(p.Heartbeats) + len(p.Removed)
			if elements == 0 && len(parts) > 1 || elements > 1 && p.Size() > limit || len(p.Encode()) != p.Size() {
				t.Fatalf("part %d has %d elements and %d bytes", i, elements, p.Size())
			}
			if len(p.Resources) > 0 && len(all.Removed) > 0 {
				t.Fatal("a resource after a removal")
			}
			all.Resources = append(all.Resources, p.Resources...)
			all.Heartbeats = append(all.Heartbeats, p.Heartbeats...)
			all.Removed = append(all.Removed, p.Removed...)
		}
		if !slices.Equal(all.Resources, b.Resources) || !slices.Equal(all.Heartbeats, b.Heartbeats) || !slices.Equal(all.Removed, b.Removed) {
			t.Fatal("the parts have not all elements in order")
		}
		if b.Size() <= limit && len(parts) != 1 {
			t.Fatalf("%d parts", len(parts))
		}
		b.Variant = SotW
		if parts := b.Split(1); len(parts) != 1 || parts[0] != b {
			t.Fatal("a SotW body is cut")
		}
	})
}
