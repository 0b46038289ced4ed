package fleet

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// The client records each violation, and rejects those that a real client rejects. A valid response
// has none.
func TestCheckerSeesViolations(t *testing.T) {
	const eds, cds = xds.EndpointType, xds.ClusterType
	cases := []struct {
		name    string
		variant Variant // of both variants, unless delta is set
		delta   bool
		do      func(t *testing.T, p *peer)
		want    string // "": none
		nack    bool
	}{
		{name: "none", do: func(t *testing.T, p *peer) { p.send(t, eds, "1", "n1", load("a", 1), load("b", 1)) }},
		{name: "empty nonce", do: func(t *testing.T, p *peer) { p.send(t, eds, "1", "", load("a", 1)) },
			want: "without a nonce"},
		{name: "repeated nonce", do: func(t *testing.T, p *peer) {
			p.send(t, eds, "1", "n1", load("a", 1))
			p.expect(t, eds)
			p.send(t, eds, "2", "n1", load("a", 2))
		}, want: `nonce "n1" repeated`},
		{name: "type not requested", do: func(t *testing.T, p *peer) {
			p.send(t, cds, "1", "n1", static("c"))
			p.send(t, eds, "1", "n2")
		}, want: "not requested on this stream"},
		{name: "resource of another type", do: func(t *testing.T, p *peer) {
			a := anyOf(eds, load("a", 1))
			a.TypeUrl = string(cds)
			p.send(t, eds, "1", "n1", a)
		}, want: "is of type", nack: true},
		{name: "the same name twice", do: func(t *testing.T, p *peer) { p.send(t, eds, "1", "n1", load("a", 1), load("a", 2)) },
			want: `"a" twice`, nack: true},
		{name: "no name", do: func(t *testing.T, p *peer) { p.send(t, eds, "1", "n1", load("", 1)) },
			want: "without a name", nack: true},
		{name: "not subscribed", do: func(t *testing.T, p *peer) { p.send(t, eds, "1", "n1", load("a", 1), load("z", 1)) },
			want: `"z" was not requested`},
		{name: "in both lists", delta: true, do: func(t *testing.T, p *peer) {
			p.sendDelta(t, eds, "1", "n1", []string{"a"}, load("a", 1))
		}, want: "both in resources and in removed_resources", nack: true},
		{name: "removed without subscription", delta: true, do: func(t *testing.T, p *peer) {
			p.sendDelta(t, eds, "1", "n1", []string{"z"})
		}, want: `removed name "z" was not requested`},
	}
	for _, tc := range cases {
		for _, v := range variants {
			if tc.delta && v == SotW {
				continue
			}
			t.Run(tc.name+"/"+v.String(), func(t *testing.T) {
				s := newScript(t)
				c := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
					Subscribe: []Subscription{{Type: eds, Names: []string{"a", "b"}}}})
				p := s.accept(t, v)
				p.expect(t, eds)
				tc.do(t, p)
				if q := p.expect(t, eds); tc.nack != (q.err != "") {
					t.Errorf("answer %+v, want NACK %v", q, tc.nack)
				}
				got := c.Violations()
				switch {
				case tc.want == "" && len(got) > 0:
					t.Errorf("violations: %q", got)
				case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)):
					t.Errorf("violations: %q, want one with %q", got, tc.want)
				}
				if tc.nack && c.Len(eds) > 0 {
					t.Errorf("held after a NACK: %v", c.Resources(eds))
				}
			})
		}
	}
}

// A resource on its way when its name was removed is no violation, and is not kept.
func TestCheckerForgivesLateResources(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a", "b"}}}})
			p := s.accept(t, v)
			p.expect(t, xds.EndpointType)
			c.SetNames(xds.EndpointType, "a")
			p.expect(t, xds.EndpointType)
			p.send(t, xds.EndpointType, "1", "n1", load("a", 1), load("b", 1))
			p.expect(t, xds.EndpointType)
			noViolations(t, c)
			holds(t, c, xds.EndpointType, "a")
		})
	}
}

// An unreadable response ends the stream, as gRPC would end it.
func TestUnreadableResponse(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Behaviour: Raw, Subscribe: []Subscription{{Type: xds.ClusterType}}})
	p := s.accept(t, SotW)
	p.expect(t, xds.ClusterType)
	broken := new(discoveryv3.DiscoveryResponse)
	broken.ProtoReflect().SetUnknown([]byte{0x12, 0x02, 0x0a, 0x7f}) // a resource with a broken inside
	p.post(t, broken)
	s.accept(t, SotW)
	if v := c.Violations(); len(v) != 1 || !strings.Contains(v[0], "unreadable") {
		t.Errorf("violations: %q", v)
	}
}
