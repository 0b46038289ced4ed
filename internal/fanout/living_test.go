package fanout

import (
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
)

// takes makes the client one with these features.
func (w *sessionFixture) takes(features ...string) {
	w.t.Helper()
	raw := (&xds.Node{}).Bytes()
	n, err := new(xds.NodeTable).Intern(xds.WithFeatures(raw, features...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.s.form = n.Form(w.s.variant)
}

// timely makes it one that takes TTLs and heartbeats in its variant.
func (w *sessionFixture) timely() {
	w.t.Helper()
	w.takes(xds.FeatureTTL, xds.FeatureSotWResource)
}

// joins is another client of the group, in place of the one before.
func (w *sessionFixture) joins(features ...string) {
	w.s = NewSession(w.typ, w.s.variant)
	w.takes(features...)
}

// with is a resource as an origin sends it: "a=2" with a TTL, and a version of
// the origin's.
func (w *sessionFixture) with(spec, version string, ttl time.Duration, aliases ...string) *xds.Resource {
	w.t.Helper()
	plain := w.resource(spec)
	body := new(anypb.Any)
	if err := proto.Unmarshal(plain.Any(), body); err != nil {
		w.t.Fatal(err)
	}
	m := &discoveryv3.Resource{Name: plain.Name, Version: version, Resource: body, Aliases: aliases}
	if ttl > 0 {
		m.Ttl = durationpb.New(ttl)
	}
	r := w.parse(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(w.typ.URL), Resources: []*discoveryv3.Resource{m}})
	return r.Resources[0].Take(w.typ, w.cur.Held(plain.Name)).Start(w.now)
}

func (w *sessionFixture) parse(m proto.Message) *xds.Response {
	w.t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := xds.ParseResponse(xds.Delta, b)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// living has the origin send resources with a TTL.
func (w *sessionFixture) living(wild bool, ttl time.Duration, specs ...string) {
	w.t.Helper()
	u := xds.Update{Origin: "o", Wildcard: wild, Received: w.now}
	for _, s := range specs {
		u.Changed = append(u.Changed, w.with(s, "", ttl))
	}
	w.apply(u)
}

// beat has it send heartbeats.
func (w *sessionFixture) beat(wild bool, names ...string) {
	w.t.Helper()
	u := xds.Update{Origin: "o", Wildcard: wild, Received: w.now, Version: w.cur.Version}
	for _, n := range names {
		u.Changed = append(u.Changed, w.cur.Held(n).Start(w.now))
	}
	w.apply(u)
}

// fail has it say errors: "a" is INTERNAL, "-a" NOT_FOUND.
func (w *sessionFixture) fail(wild bool, specs ...string) {
	w.t.Helper()
	u := xds.Update{Origin: "o", Wildcard: wild, Received: w.now}
	for _, s := range specs {
		name, absent := strings.CutPrefix(s, "-")
		code := codes.Internal
		if absent {
			code = codes.NotFound
			u.Removed = append(u.Removed, name)
		}
		u.Errors = append(u.Errors, w.parse(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(w.typ.URL), ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: name},
			ErrorDetail:  &statuspb.Status{Code: int32(code), Message: w.now.String()},
		}}}).Errors...)
	}
	w.apply(u)
}

func (w *sessionFixture) apply(u xds.Update) {
	u.Type = w.typ.URL
	w.builder.Apply(u)
	w.publish()
}

func (w *sessionFixture) publish() {
	w.state++
	w.cur, _ = w.builder.Snapshot(w.cur, w.state)
}

// lapse lets go of what has expired, as a group does.
func (w *sessionFixture) lapse() {
	w.builder.Expire(w.now)
	w.builder.Settle(w.s.sub.Names)
	w.publish()
}

// sent is a resource as it stood in the last response.
type sent struct {
	name, version string
	ttl           time.Duration
	body, wrapped bool
}

// wire decodes the last response.
func (w *sessionFixture) wire() (version string, out []sent) {
	w.t.Helper()
	of := func(r *discoveryv3.Resource) sent {
		return sent{r.Name, r.Version, r.Ttl.AsDuration(), r.Resource != nil, true}
	}
	if w.s.variant == xds.Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(w.frame.body, m); err != nil {
			w.t.Fatal(err)
		}
		for _, r := range m.Resources {
			out = append(out, of(r))
		}
		return m.SystemVersionInfo, out
	}
	m := new(discoveryv3.DiscoveryResponse)
	if err := proto.Unmarshal(w.frame.body, m); err != nil {
		w.t.Fatal(err)
	}
	for _, a := range m.Resources {
		r := new(discoveryv3.Resource)
		if a.UnmarshalTo(r) != nil {
			out = append(out, sent{body: true})
			continue
		}
		out = append(out, of(r))
	}
	return m.VersionInfo, out
}

// wantWire fails unless the last response had these.
func (w *sessionFixture) wantWire(want ...sent) {
	w.t.Helper()
	_, got := w.wire()
	if len(got) != len(want) {
		w.t.Fatalf("%+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			w.t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// eachCombination runs a test in both variants for an origin that answers names,
// and for one that answers the wildcard.
func eachAnswer(t *testing.T, url xds.TypeURL, f func(w *sessionFixture, wild bool)) {
	for _, v := range variants {
		for _, wild := range []bool{false, true} {
			what := v.String() + "/names"
			if wild {
				what = v.String() + "/wildcard"
			}
			t.Run(what, func(t *testing.T) { f(newSessionFixture(t, url, v), wild) })
		}
	}
}

// ask subscribes to the wildcard, or else to names, and answers repeat it.
func (w *sessionFixture) ask(wild bool, names ...string) (list []string) {
	w.t.Helper()
	if wild {
		names = []string{"*"}
	}
	w.sub(names...)
	return names
}
