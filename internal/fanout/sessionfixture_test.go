package fanout

import (
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// ackTimeout of the sessions under test.
const ackTimeout = 15 * time.Second

// sessionFixture is one type of a group, a session on it, and a clock: what the script
// of a test speaks to.
type sessionFixture struct {
	t       testing.TB
	typ     xds.Type
	builder *xds.Builder
	cur     *xds.Snapshot
	state   uint64
	now     time.Time

	s      *Session
	seq    uint64
	nonces []uint64 // of the responses so far, oldest first
	subs   []*xds.Subscription
	frame  *Frame   // the last response
	follow []string // of it (P37)
	linger []string // names that nobody wants, and that the group did not forget yet (P52)
	again  []string // what the last request asked again (P18)
	later  bool     // a later type has a newer change to send (P19)
	plan   Plan     // of the last response
	size   int      // of it, with a nonce of the longest

	refused string // version that was refused last
	partial bool   // more of the answer to the wildcard may follow (P67)
}

func newSessionFixture(t testing.TB, url xds.TypeURL, v xds.Variant) *sessionFixture {
	typ := xds.TypeOf(url)
	return &sessionFixture{t: t, typ: typ, builder: xds.NewBuilder(typ), now: time.Unix(1e9, 0), s: NewSession(typ, v)}
}

// resource makes one of the fixture's type: "a" is named a, "a=2" has another
// content, "a|b|c=2" goes by the aliases b and c as well. In a spec with an
// xdstp:// name the content follows an @, since it may have parameters.
func (w *sessionFixture) resource(spec string) *xds.Resource {
	names, content, _ := strings.Cut(spec, "=")
	if strings.Contains(spec, "xdstp://") {
		names, content, _ = strings.Cut(spec, "@")
	}
	all := strings.Split(names, "|")
	if strings.HasPrefix(names, "?") {
		return w.unresolved(all[0][1:], all[1:])
	}
	return w.make(all[0], content, all[1:]...)
}

// unresolved is an origin's word that it has no resource for the aliases.
func (w *sessionFixture) unresolved(name string, aliases []string) *xds.Resource {
	word, ok := w.cut(&discoveryv3.Resource{Name: name, Aliases: aliases, Version: "v"}).TakeUnresolved(xds.NewNameSet(append(aliases, name)...))
	if !ok {
		w.t.Fatalf("%s speaks of nothing", name)
	}
	return word.Resource
}

// cut reads a resource as an origin sends it.
func (w *sessionFixture) cut(r *discoveryv3.Resource) *xds.Raw {
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(w.typ.URL), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		w.t.Fatal(err)
	}
	cut, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		w.t.Fatal(err)
	}
	return &cut.Resources[0]
}

func (w *sessionFixture) make(name, content string, aliases ...string) *xds.Resource {
	if len(aliases) > 0 {
		a := new(anypb.Any)
		if err := proto.Unmarshal(w.make(name, content).Any(), a); err != nil {
			w.t.Fatal(err)
		}
		return w.cut(&discoveryv3.Resource{Name: name, Aliases: aliases, Resource: a}).Take(w.typ, nil)
	}
	var m proto.Message
	switch w.typ.URL {
	case xds.ClusterType:
		m = &clusterv3.Cluster{Name: name, AltStatName: content, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	case xds.EndpointType:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: uint32(len(content))}}}
	default:
		value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		value = protowire.AppendString(protowire.AppendTag(value, 100, protowire.BytesType), content)
		return w.raw(name, &anypb.Any{TypeUrl: string(w.typ.URL), Value: value})
	}
	a, err := anypb.New(m)
	if err != nil {
		w.t.Fatal(err)
	}
	a.TypeUrl = string(w.typ.URL)
	return w.raw(name, a)
}

func (w *sessionFixture) raw(name string, a *anypb.Any) *xds.Resource {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := xds.NewResource(w.typ, name, wire)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// origin applies an update: "a", "b=2" are changed, "-c" is removed; wild says
// that it answers the wildcard.
func (w *sessionFixture) origin(wild bool, specs ...string) {
	u := xds.Update{Type: w.typ.URL, Origin: "o", Wildcard: wild, Partial: w.partial, Received: w.now}
	for _, s := range specs {
		if name, gone := strings.CutPrefix(s, "-"); gone {
			u.Removed = append(u.Removed, name)
		} else if r := w.resource(s); r.Unresolved() {
			u.Unresolved = append(u.Unresolved, xds.Unresolved{Resource: r, Names: strings.Split(s[1:], "|")})
		} else {
			u.Changed = append(u.Changed, r)
		}
	}
	asked := w.s.want.Names.Add(w.linger...)
	w.builder.Apply(u)
	w.builder.Settle(asked)
	w.state++
	w.cur, _ = w.builder.Snapshot(w.cur, w.state)
}

// named and wild are the origin's answers to names and to the wildcard.
func (w *sessionFixture) named(specs ...string) { w.t.Helper(); w.origin(false, specs...) }
func (w *sessionFixture) wild(specs ...string)  { w.t.Helper(); w.origin(true, specs...) }

// part is a part of the origin's answer to the wildcard, and whole says that no more
// is to come (P67).
func (w *sessionFixture) part(specs ...string) {
	w.t.Helper()
	w.partial = true
	w.origin(true, specs...)
	w.partial = false
}

func (w *sessionFixture) whole() {
	w.builder.Complete()
	w.state++
	w.cur, _ = w.builder.Snapshot(w.cur, w.state)
}

// request describes a request of the client.
type request struct {
	names, unsub []string
	initial      map[string]string
	ack, nack    int    // of the n-th response, from 1; -1: the newest
	nonce        uint64 // any other
	version      string
}

// intern is what a group does: equal subscriptions are one.
func (w *sessionFixture) intern(s *xds.Subscription) *xds.Subscription {
	for _, have := range w.subs {
		if have.Equal(s) {
			return have
		}
	}
	w.subs = append(w.subs, s)
	return s
}

// send applies a request of the client.
func (w *sessionFixture) send(r request) Outcome {
	w.t.Helper()
	var req xds.Request
	if err := req.Scan(w.s.variant, r.wire(w.s.variant), 0); err != nil {
		w.t.Fatal(err)
	}
	seq := r.nonce
	if n := r.ack + r.nack; n < 0 {
		seq = w.nonces[len(w.nonces)-1]
	} else if n > 0 {
		seq = w.nonces[n-1]
	}
	want, _ := w.s.Subscribe(&req)
	out := w.s.Request(&req, w.intern(want), seq)
	w.again = w.s.Again(&req, w.cur)
	w.builder.Again(w.again...)
	return out
}

func (w *sessionFixture) sub(names ...string)   { w.t.Helper(); w.send(request{names: names}) }
func (w *sessionFixture) unsub(names ...string) { w.t.Helper(); w.send(request{unsub: names}) }

// ack and nack answer the newest response; a SotW client repeats its names.
// (to an incremental server that would be a subscription).
func (w *sessionFixture) ack(names ...string) {
	w.t.Helper()
	w.send(request{names: w.list(names), ack: -1})
}
func (w *sessionFixture) nack(names ...string) {
	w.t.Helper()
	w.send(request{names: w.list(names), nack: -1})
}

func (w *sessionFixture) list(names []string) []string {
	if w.s.variant == xds.Delta {
		return nil
	}
	return names
}

func (w *sessionFixture) moment() Moment {
	return Moment{Now: w.now, AckTimeout: ackTimeout, Release: w.later}
}

func (w *sessionFixture) pass(d time.Duration) { w.now = w.now.Add(d) }

// wire encodes the request for the variant.
func (r request) wire(v xds.Variant) []byte {
	var b []byte
	str := func(num protowire.Number, s string) {
		b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	for _, n := range r.names {
		str(3, n)
	}
	if v == xds.SotW {
		str(1, r.version)
		if r.nack != 0 {
			str(6, "\x08\x03\x12\x07refused")
		}
		return b
	}
	for _, n := range r.unsub {
		str(4, n)
	}
	for n, ver := range r.initial {
		var e []byte
		e = protowire.AppendString(protowire.AppendTag(e, 1, protowire.BytesType), n)
		e = protowire.AppendString(protowire.AppendTag(e, 2, protowire.BytesType), ver)
		str(5, string(e))
	}
	if r.nack != 0 {
		str(7, "\x08\x03\x12\x07refused")
	}
	return b
}

// next runs the session as a worker does and returns the response: "a b=2 -c",
// with "~a" for a heartbeat (P62) and "!a" for an error (P39),
// "(empty)" for one without anything, "" for none.
func (w *sessionFixture) next() string {
	w.t.Helper()
	p := w.s.Next(w.cur, w.moment())
	if p.do == nothing || p.do == hold {
		return ""
	}
	f := framesOf(p.to).frame(nil, &p, "id")
	switch {
	case p.oversized != nil:
		w.s.Stuck(&p)
		return ""
	case f.Empty():
		w.s.Settled(&p)
		return ""
	}
	w.plan, w.size = p, len(f.body)+nonceSize
	w.seq++
	w.nonces = append(w.nonces, w.seq)
	w.s.Sent(&p, f.manifest, w.seq, w.now)
	w.frame = f
	w.follow = slices.Sorted(slices.Values(slices.Concat(f.follows, p.besides)))
	var out []string
	for _, r := range f.resources {
		out = append(out, w.describe(r))
	}
	for _, n := range f.removed {
		out = append(out, "-"+n)
	}
	for _, r := range f.beats {
		out = append(out, "~"+r.Name)
	}
	for _, e := range f.errors {
		out = append(out, "!"+e.Name)
	}
	if len(out) == 0 {
		return "(empty)"
	}
	return strings.Join(out, " ")
}

// describe writes a resource as resource reads it.
func (w *sessionFixture) describe(r *xds.Resource) string {
	if r.Unresolved() {
		return "?" + r.Name
	}
	var a anypb.Any
	if err := proto.Unmarshal(r.Any(), &a); err != nil {
		w.t.Fatal(err)
	}
	content := ""
	for _, c := range []string{"", "2", "33"} {
		if slices.Equal(w.make(r.Name, c).Any(), r.Any()) {
			content = c
		}
	}
	sep := "="
	switch {
	case content == "":
		return r.Name
	case strings.HasPrefix(r.Name, "xdstp://"):
		sep = "@"
	}
	return r.Name + sep + content
}

// want fails unless the next response is this.
func (w *sessionFixture) want(response string) {
	w.t.Helper()
	if got := w.next(); got != response {
		w.t.Fatalf("sends %q, want %q", got, response)
	}
}

// room is the size of a response with so many of the largest resources.
func (w *sessionFixture) room(n int) int { return w.roomFor("a=33", n) }

// roomFor is the size of a response with so many resources of a spec.
func (w *sessionFixture) roomFor(spec string, n int) int {
	b := xds.Body{Form: xds.Form{Variant: w.s.variant}, Type: w.typ.URL, Version: strings.Repeat("0", 32), Identifier: identifier("id", &xds.Snapshot{Origin: "o"}),
		Resources: slices.Repeat([]*xds.Resource{w.resource(spec)}, n)}
	return nonceSize + b.Size()
}
