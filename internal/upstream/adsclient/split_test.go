package adsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// requests returns all due requests, decoded. Each must be within the limit, or be marked as
// oversized.
func (r *protocolFixture) requests() []*discoveryv3.DeltaDiscoveryRequest {
	r.t.Helper()
	var out []*discoveryv3.DeltaDiscoveryRequest
	for req := r.next(); req != nil; req = r.next() {
		if n := len(req.bytes()); n > r.max || req.Oversized {
			r.t.Errorf("request of %d bytes, more than %d; oversized: %v", n, r.max, req.Oversized)
		}
		m := new(discoveryv3.DeltaDiscoveryRequest)
		mustUnmarshal(r.t, req.bytes(), m)
		out = append(out, m)
	}
	return out
}

func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("name-%03d", i)
	}
	return out
}

func TestP59_DeltaUnsubscribedNamesAreSplit(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	names := many(100)
	r.want(named(eds, names...))
	r.requests()
	r.max = 200
	r.conversation.(*delta).MaxRequestBytes = r.max
	r.set()
	r.want(named(eds, names...)) // unsubscribed and wanted again before a request was sent
	var out, in []string
	for _, q := range r.requests() {
		if len(q.ResourceNamesSubscribe) > 0 && len(out) < len(names) {
			t.Errorf("requested again before all names were dropped: %v", q)
		}
		out = append(out, q.ResourceNamesUnsubscribe...)
		in = append(in, q.ResourceNamesSubscribe...)
	}
	slices.Sort(out)
	slices.Sort(in)
	if !slices.Equal(out, names) || !slices.Equal(in, names) {
		t.Errorf("dropped %v, requested %v", out, in)
	}
}

// A request that fits is not split.
func TestP59_DeltaRequestThatFitsIsNotSplit(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	names := many(20)
	r.want(named(eds, names...))
	r.requests()
	r.respond(resp{Type: eds, Resources: clusters(names...)})
	r.connect()
	r.max = len(r.next().bytes())
	for _, versions := range []int{20, 19} {
		r.connect()
		reqs := r.requests()
		if len(reqs) != 1 || len(reqs[0].InitialResourceVersions) != versions {
			t.Errorf("%d requests of at most %d bytes", len(reqs), r.max)
		}
		r.max--
	}
}

func TestP59_Fit(t *testing.T) {
	const size = 3 // of a name of one byte
	for _, c := range []struct {
		add, drop      string
		room           int
		adding, giving string
	}{
		{"abc", "xyz", 6 * size, "abc", "xyz"},
		{"abc", "xyz", 5 * size, "abc", "xy"},
		{"abc", "xyz", 3 * size, "abc", ""},
		{"abc", "xyz", 3*size - 1, "ab", ""},
		{"abc", "", size, "a", ""},
		{"abc", "xyz", 1, "a", ""},
		{"", "xyz", 2 * size, "", "xy"},
		{"", "xyz", 1, "", "x"},
		{"", "", 1, "", ""},
	} {
		list := func(s string) []string { return strings.Split(s, "")[:len(s)] }
		adding, giving := splitChange(list(c.add), list(c.drop), c.room)
		if strings.Join(adding, "") != c.adding || strings.Join(giving, "") != c.giving {
			t.Errorf("%+v: %v, %v", c, adding, giving)
		}
	}
}
