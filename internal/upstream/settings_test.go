package upstream

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/xds"
)

// Each origin has its own variant, number of failures until the next one, and metadata of streams.
func TestP56_OriginHasItsOwnSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
		one, two := n.origin("one"), n.origin("two")
		r := newRelay(t, xds.SotW, Options{Dialer: n.dial, Backoff: steep, Origins: []OriginOptions{
			{Address: addressOf("one"), MaxFailures: 1, Identify: func(k xds.Key) (Identity, error) { return Identity{Metadata: metadata.Pairs("x-key", k.String())}, nil }},
			{Address: addressOf("two")},
		}})
		r.client.origins[1].Variant = xds.Delta
		r.launch()
		_, sink := r.stream(named(rds, "a"))
		s := one.opens()
		if md, _ := metadata.FromIncomingContext(s.Context()); s.v != xds.SotW || !slices.Equal(md.Get("x-key"), []string{"key"}) || !strings.HasPrefix(strings.Join(md.Get("user-agent"), ""), "xdsrelay grpc-go/") {
			t.Errorf("variant %s, metadata %v", s.v, md)
		}
		s.done <- nil
		s = two.opens()
		if md, _ := metadata.FromIncomingContext(s.Context()); s.v != xds.Delta || len(md.Get("x-key")) > 0 {
			t.Errorf("variant %s, metadata %v", s.v, md)
		}
		s.got("RDS +[a]")
		s.send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
	})
}

// Versions that an origin gave are listed at all origins of its domain, and at no other.
func TestP55_VersionsCountForADomain(t *testing.T) {
	for domain, want := range map[string]string{"": "RDS +[a b] a= b=", "d": "RDS +[a b] a= b=1"} {
		synctest.Test(t, func(t *testing.T) {
			n := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
			one, two := n.origin("one"), n.origin("two")
			r := startRelay(t, xds.Delta, Options{Dialer: n.dial, Backoff: steep, Origins: []OriginOptions{
				{Address: addressOf("one"), Domain: domain}, {Address: addressOf("two"), Domain: domain},
			}})
			_, sink := r.stream(named(rds, "a", "b"))
			s := one.opens()
			s.send(resp{Type: rds, Resources: []res{{Name: "a", Version: "1"}, {Name: "b", Version: "1", Content: "larger"}}})
			sink.UntilNames(t, rds, "a", "b")
			s.done <- nil
			for range 2 {
				one.opens().done <- nil
			}
			two.opens().got(want)
		})
	}
}
