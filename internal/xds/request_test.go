package xds

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Metrics, logs and the status use these names.
func TestVariantString(t *testing.T) {
	if SotW.String() != "sotw" || Delta.String() != "delta" {
		t.Errorf("%s and %s", SotW, Delta)
	}
}

// wantRequest is what a scan must find: what proto.Unmarshal found.
type wantRequest struct {
	typeURL, nonce, version string
	names, unsubscribe      []string
	initial                 map[string]string
	node                    proto.Message
	detail                  *statuspb.Status
	locators                bool
}

func wantFromSotW(m *discoveryv3.DiscoveryRequest) wantRequest {
	e := wantRequest{typeURL: m.TypeUrl, nonce: m.ResponseNonce, version: m.VersionInfo, names: m.ResourceNames,
		detail: m.ErrorDetail, locators: len(m.ResourceLocators) > 0}
	if m.Node != nil {
		e.node = m.Node
	}
	return e
}

func wantFromDelta(m *discoveryv3.DeltaDiscoveryRequest) wantRequest {
	e := wantRequest{typeURL: m.TypeUrl, nonce: m.ResponseNonce, names: m.ResourceNamesSubscribe,
		unsubscribe: m.ResourceNamesUnsubscribe, initial: m.InitialResourceVersions, detail: m.ErrorDetail,
		locators: len(m.ResourceLocatorsSubscribe)+len(m.ResourceLocatorsUnsubscribe) > 0}
	if m.Node != nil {
		e.node = m.Node
	}
	return e
}

func stringsOf(b [][]byte) []string {
	var out []string
	for _, s := range b {
		out = append(out, string(s))
	}
	return out
}

// firstDifference names the first field in which r differs from e; "" if none does.
func firstDifference(r *Request, e wantRequest) string {
	initial := map[string]string{}
	for _, nv := range r.Initial {
		initial[string(nv.Name)] = string(nv.Version)
	}
	switch {
	case string(r.TypeURL) != e.typeURL:
		return "type"
	case string(r.Nonce) != e.nonce:
		return "nonce"
	case string(r.Version) != e.version:
		return "version"
	case !slices.Equal(stringsOf(r.Names), e.names):
		return "names"
	case !slices.Equal(stringsOf(r.Unsubscribe), e.unsubscribe):
		return "unsubscribe"
	case !maps.Equal(initial, e.initial):
		return "initial_resource_versions"
	case r.IsNACK != (e.detail != nil), r.ErrorCode != e.detail.GetCode(), string(r.ErrorMessage) != e.detail.GetMessage():
		return "error_detail"
	case r.Locators != e.locators:
		return "locators"
	case (r.Node != nil) != (e.node != nil):
		return "node"
	}
	if e.node != nil {
		node := new(corev3.Node)
		if err := proto.Unmarshal(r.Node, node); err != nil || !proto.Equal(node, e.node) {
			return "node"
		}
	}
	return ""
}

// requestOf draws a request of variant v.
func requestOf(v Variant) *rapid.Generator[proto.Message] {
	return rapid.Custom(func(t *rapid.T) proto.Message {
		text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z]{1,8}`), rapid.String())
		list := rapid.SliceOfN(text, 0, 6)
		maybe := func(what string) bool { return rapid.Bool().Draw(t, what) }
		var node *corev3.Node
		if maybe("node") {
			node = &corev3.Node{Id: text.Draw(t, "id"), Cluster: text.Draw(t, "cluster")}
		}
		var detail *statuspb.Status
		if maybe("error_detail") {
			detail = &statuspb.Status{Code: rapid.Int32().Draw(t, "code"), Message: text.Draw(t, "message")}
		}
		locators := func(what string) (out []*discoveryv3.ResourceLocator) {
			if maybe(what) {
				out = append(out, &discoveryv3.ResourceLocator{Name: text.Draw(t, what)})
			}
			return out
		}
		if v == SotW {
			return &discoveryv3.DiscoveryRequest{
				VersionInfo: text.Draw(t, "version"), Node: node, ResourceNames: list.Draw(t, "names"),
				TypeUrl: text.Draw(t, "type"), ResponseNonce: text.Draw(t, "nonce"), ErrorDetail: detail,
				ResourceLocators: locators("locators"),
			}
		}
		return &discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: text.Draw(t, "type"), ResponseNonce: text.Draw(t, "nonce"), ErrorDetail: detail,
			ResourceNamesSubscribe: list.Draw(t, "subscribe"), ResourceNamesUnsubscribe: list.Draw(t, "unsubscribe"),
			InitialResourceVersions:     rapid.MapOfN(text, text, 0, 4).Draw(t, "initial"),
			ResourceLocatorsSubscribe:   locators("locators"),
			ResourceLocatorsUnsubscribe: locators("more locators"),
		}
	})
}

func wantFrom(m proto.Message) wantRequest {
	if d, ok := m.(*discoveryv3.DeltaDiscoveryRequest); ok {
		return wantFromDelta(d)
	}
	return wantFromSotW(m.(*discoveryv3.DiscoveryRequest))
}

// A scan finds what proto.Unmarshal finds. The Request was used before, and the message has unknown
// fields.
func TestScanAgainstUnmarshal(t *testing.T) {
	for _, v := range []Variant{SotW, Delta} {
		var r Request
		requests := requestOf(v)
		rapid.Check(t, func(t *rapid.T) {
			m := requests.Draw(t, "request")
			msg, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			unknown := wire(77, rapid.Int().Draw(t, "unknown"), 78, "unknown")
			msg = slices.Concat(unknown, msg, unknown)
			if err := r.Scan(v, msg, 0); err != nil {
				t.Fatal(err)
			}
			if what := firstDifference(&r, wantFrom(m)); what != "" {
				t.Fatalf("%s: %s differs:\n%+v, want\n%v", v, what, r, m)
			}
			var again Request
			if err := again.Scan(v, bytes.Clone(msg), 0, r.List); err != nil || again.List != r.List {
				t.Fatalf("another list of the same names, %v", err)
			}
			if v == SotW && (again.Known != r.List || len(again.Names) != 0) {
				t.Fatalf("the list is not recognised: %+v", again)
			}
			again.Names = r.Names
			if what := firstDifference(&again, wantFrom(m)); what != "" {
				t.Fatalf("%s: %s differs after the list was recognised", v, what)
			}
		})
	}
}

func TestMalformedRequests(t *testing.T) {
	for what, c := range map[string]struct {
		v   Variant
		msg []byte
	}{
		"no length":                       {SotW, []byte{0x1a}},
		"cut":                             {SotW, []byte{0x1a, 5, 'a'}},
		"no tag":                          {SotW, []byte{0x80}},
		"field 0":                         {SotW, []byte{0x02, 0}},
		"a cut number":                    {SotW, []byte{0x38, 0x80}},
		"a group's end":                   {Delta, []byte{0x0c}},
		"an unfinished group":             {Delta, []byte{0x0b, 0x08}},
		"error_detail is cut":             {SotW, wire(6, []byte{0x08})},
		"error_detail is cut, delta":      {Delta, wire(7, []byte{0x12, 4})},
		"an initial version is cut":       {Delta, wire(5, []byte{0x0a, 4})},
		"a name is not UTF-8":             {SotW, wire(3, "\xff")},
		"a new name is not UTF-8":         {Delta, wire(3, "a\xc0")},
		"an old name is not UTF-8":        {Delta, wire(4, "\xff")},
		"an initial name is not UTF-8":    {Delta, wire(5, wire(1, "\xff"))},
		"a type is not UTF-8":             {SotW, wire(4, "\xff")},
		"a type is not UTF-8, delta":      {Delta, wire(2, "\xff")},
		"malformed after what is good":    {SotW, append(wire(3, "a", 4, "b"), 0x1a)},
		"a length beyond what can be had": {SotW, []byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
	} {
		var r Request
		if err := r.Scan(c.v, c.msg, 0); err == nil {
			t.Errorf("%s: no error, but %+v", what, r)
		}
		// An error does not affect the next scan.
		if err := r.Scan(SotW, wire(3, "n", 4, "t"), 0); err != nil || len(r.Names) != 1 || string(r.TypeURL) != "t" || r.IsNACK {
			t.Errorf("after %s: %+v, %v", what, r, err)
		}
	}
}

func TestP28_LongNamesInRequests(t *testing.T) {
	fits, long := strings.Repeat("x", MaxNameBytes), strings.Repeat("x", MaxNameBytes+1)
	for what, msg := range map[string]func(string) []byte{
		"subscribe":   func(n string) []byte { return wire(3, n) },
		"unsubscribe": func(n string) []byte { return wire(4, n) },
		"initial":     func(n string) []byte { return wire(5, wire(1, n, 2, "v")) },
	} {
		var r Request
		if err := r.Scan(Delta, msg(fits), 0); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.Scan(Delta, msg(long), 0); !errors.Is(err, ErrLongRequestName) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var r Request
	if err := r.Scan(SotW, wire(3, long), 0); !errors.Is(err, ErrLongRequestName) {
		t.Errorf("SotW: %v", err)
	}
}

// A list is identified by its names, their order and number, and by where each name ends. The
// fields around it do not matter.
func TestNameLists(t *testing.T) {
	list := func(names ...string) NameList {
		var msg []byte
		for _, n := range names {
			msg = append(msg, wire(3, n)...)
		}
		return scanned(t, msg).List
	}
	seen := map[NameList][]string{}
	for _, names := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a", "b", ""}, {"", "a", "b"}, {"a", "a"}, {"a\x01\x00\x00\x00b"},
	} {
		l := list(names...)
		if other, ok := seen[l]; ok {
			t.Errorf("%q and %q are the same list", names, other)
		}
		seen[l] = names
		if !l.Repeats(list(names...)) || l.Empty() != (len(names) == 0) {
			t.Errorf("%q: %+v", names, l)
		}
	}
	around := scanned(t, wire(1, "1", 3, "a", 3, "b", 4, "t", 5, "n")).List
	if !around.Repeats(list("a", "b")) {
		t.Error("other fields play a part in the list")
	}
	scattered := scanned(t, wire(1, "1", 3, "a", 4, "t", 5, "n", 3, "b"))
	if len(scattered.Names) != 2 || scattered.List.Empty() || scattered.List.Repeats(scattered.List) {
		t.Errorf("a list in two pieces is recognised: %+v", scattered)
	}
	var delta Request
	if err := delta.Scan(Delta, wire(2, "t", 3, "a"), 0, list("a")); err != nil || !delta.List.Empty() || len(delta.Names) != 1 {
		t.Errorf("delta: %+v, %v", delta, err)
	}
}

func scanned(t *testing.T, msg []byte, known ...NameList) *Request {
	t.Helper()
	var r Request
	if err := r.Scan(SotW, msg, 0, known...); err != nil {
		t.Fatal(err)
	}
	return &r
}

// A list that a stream sent before is recognised by its bytes, also with names appended (P20). Only
// the appended names are read, and the limit counts all names.
func TestP20_KnownListsAreNotReadAgain(t *testing.T) {
	long := strings.Repeat("n", 2*NameUnit) // counts twice
	a := scanned(t, wire(3, "a")).List
	ab := scanned(t, wire(3, "a", 3, long)).List
	other := scanned(t, wire(3, "b", 3, "a")).List
	for _, c := range []struct {
		what  string
		msg   []byte
		known NameList
		names []string
	}{
		{"repeated", wire(1, "7", 3, "a", 3, long, 4, "t", 5, "n"), ab, nil},
		{"appended", wire(1, "7", 3, "a", 3, long, 3, "c", 4, "t", 5, "n"), ab, []string{"c"}},
		{"a part of a known list", wire(1, "7", 3, "a", 3, "c", 4, "t", 5, "n"), a, []string{"c"}},
		{"shorter than any", wire(1, "7", 4, "t", 5, "n"), NameList{}, nil},
		{"another order", wire(1, "7", 3, long, 3, "a", 4, "t", 5, "n"), NameList{}, []string{long, "a"}},
		{"in the middle", wire(1, "7", 3, "c", 3, "a", 4, "t", 5, "n"), NameList{}, []string{"c", "a"}},
		{"in two pieces", wire(3, "a", 1, "7", 3, "c", 4, "t", 5, "n"), a, []string{"c"}},
	} {
		r := scanned(t, c.msg, a, ab, other)
		if r.Known != c.known || !slices.Equal(stringsOf(r.Names), c.names) || string(r.TypeURL) != "t" || string(r.Nonce) != "n" || string(r.Version) != "7" {
			t.Errorf("%s: %+v", c.what, r)
		}
		if full := scanned(t, c.msg); r.List != full.List {
			t.Errorf("%s: list %+v, without known lists %+v", c.what, r.List, full.List)
		}
	}
	var r Request
	for limit, want := range map[int]error{2: ErrTooManyNames, 3: ErrTooManyNames, 4: nil} {
		if err := r.Scan(SotW, wire(3, "a", 3, long, 3, "c"), limit, ab); err != want {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// manyNames returns an ACK for load assignments that lists n names.
func manyNames(n int) *discoveryv3.DiscoveryRequest {
	m := &discoveryv3.DiscoveryRequest{TypeUrl: string(EndpointType), VersionInfo: "1234", ResponseNonce: "17"}
	for i := range n {
		m.ResourceNames = append(m.ResourceNames, fmt.Sprintf("outbound|8080||service-%04d.namespace.svc.cluster.local", i))
	}
	return m
}

func TestScanDoesNotAllocate(t *testing.T) {
	delta := &discoveryv3.DeltaDiscoveryRequest{
		Node: someNode(), TypeUrl: string(EndpointType), ResponseNonce: "n",
		ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{"c"},
		InitialResourceVersions: map[string]string{"a": "1", "b": "2"},
		ErrorDetail:             &statuspb.Status{Code: 3, Message: "no"},
	}
	for what, c := range map[string]struct {
		v   Variant
		msg []byte
	}{
		"ACK":                    {SotW, marshal(t, manyNames(0))},
		"ACK of a thousand":      {SotW, marshal(t, manyNames(1000))},
		"everything incremental": {Delta, marshal(t, delta)},
	} {
		var r Request
		if n := testing.AllocsPerRun(100, func() {
			if err := r.Scan(c.v, c.msg, 0); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// A Request keeps only the message alive that it scanned last. Otherwise a client could keep one
// message alive for each name.
func TestScanLetsGoOfOldMessages(t *testing.T) {
	var r Request
	if err := r.Scan(Delta, wire(3, "a", 3, "b", 4, "c", 4, "d", 5, wire(1, "e"), 5, wire(1, "f")), 0); err != nil {
		t.Fatal(err)
	}
	for _, msg := range [][]byte{wire(3, "x", 4, "y", 5, wire(1, "z")), nil} {
		if err := r.Scan(Delta, msg, 0); err != nil {
			t.Fatal(err)
		}
		for _, b := range slices.Concat(r.Names[:cap(r.Names)][len(r.Names):], r.Unsubscribe[:cap(r.Unsubscribe)][len(r.Unsubscribe):]) {
			if b != nil {
				t.Errorf("%q is still in an array", b)
			}
		}
		for _, nv := range r.Initial[:cap(r.Initial)][len(r.Initial):] {
			if nv.Name != nil || nv.Version != nil {
				t.Errorf("%q is still in an array", nv.Name)
			}
		}
	}
}

// A scan agrees with proto.Unmarshal on messages that protobuf can read, except for the limit on
// names and for repeated singular fields. Protobuf also refuses what a scan refuses.
func FuzzScan(f *testing.F) {
	f.Fuzz(func(t *testing.T, delta bool, msg []byte) {
		v, m := SotW, proto.Message(new(discoveryv3.DiscoveryRequest))
		node := protowire.Number(2)
		if delta {
			v, m, node = Delta, new(discoveryv3.DeltaDiscoveryRequest), 1
		}
		var r Request
		err := r.Scan(v, msg, 0)
		bad := proto.Unmarshal(msg, m)
		if err != nil {
			if bad == nil && !errors.Is(err, ErrLongRequestName) {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		if bad != nil {
			return
		}
		e := wantFrom(m)
		if len(fieldsOf(t, msg, node)) > 1 {
			r.Node, e.node = nil, nil
		}
		if what := firstDifference(&r, e); what != "" {
			t.Fatalf("%s differs:\n%+v, want\n%v", what, r, m)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	for _, names := range []int{0, 1000} {
		msg := marshal(b, manyNames(names))
		b.Run(fmt.Sprintf("ACK/names=%d/scan", names), func(b *testing.B) {
			b.ReportAllocs()
			var r Request
			for b.Loop() {
				if err := r.Scan(SotW, msg, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("ACK/names=%d/known", names), func(b *testing.B) {
			b.ReportAllocs()
			var r Request
			if err := r.Scan(SotW, msg, 0); err != nil {
				b.Fatal(err)
			}
			for known := r.List; b.Loop(); {
				if err := r.Scan(SotW, msg, 0, known); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("ACK/names=%d/unmarshal", names), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(msg, new(discoveryv3.DiscoveryRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
