package session

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// takes makes the client one with these features.
func (w *sessionFixture) takes(features ...string) {
	w.T.Helper()
	raw := (&xds.Node{}).Bytes()
	n := xdstest.Must(new(xds.NodeTable).Intern(xds.WithFeatures(raw, features...)))(w.T)
	w.s.form = n.ResourceFormat(w.s.form.Variant)
}

// timely makes it a client that takes TTLs and heartbeats in its variant.
func (w *sessionFixture) timely() {
	w.T.Helper()
	w.takes(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
}

// joins replaces the client by another one of the group.
func (w *sessionFixture) joins(features ...string) {
	w.s = newSession(w.Type, w.s.form.Variant)
	w.takes(features...)
}

// lapse drops what has expired, as a group does.
func (w *sessionFixture) lapse() {
	w.Builder.Expire(w.Now)
	w.Builder.ResolveAliases(w.s.sub.effective.Names)
	w.Publish()
}

// sent is a resource as it was in the last response.
type sent struct {
	name, version string
	ttl           time.Duration
	body, wrapped bool
}

// wire decodes the last response.
func (w *sessionFixture) wire() (version string, out []sent) {
	w.T.Helper()
	of := func(r *discoveryv3.Resource) sent {
		return sent{r.Name, r.Version, r.Ttl.AsDuration(), r.Resource != nil, true}
	}
	if w.s.form.Variant == xds.Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		xdstest.NoError(w.T, proto.Unmarshal(w.frame.body, m))
		for _, r := range m.Resources {
			out = append(out, of(r))
		}
		return m.SystemVersionInfo, out
	}
	m := new(discoveryv3.DiscoveryResponse)
	xdstest.NoError(w.T, proto.Unmarshal(w.frame.body, m))
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
	w.T.Helper()
	_, got := w.wire()
	if len(got) != len(want) {
		w.T.Fatalf("%+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			w.T.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// eachAnswer runs a test in both variants, for an origin that answers names and for one that
// answers the wildcard.
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

// ask subscribes to the wildcard, or else to names.
func (w *sessionFixture) ask(wild bool, names ...string) {
	w.T.Helper()
	if wild {
		names = []string{"*"}
	}
	w.sub(names...)
}
