package xds

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestNodeIsReadOnTheWire(t *testing.T) {
	var table NodeTable
	raw := marshal(t, someNode())
	n, err := table.Intern(raw)
	if err != nil {
		t.Fatal(err)
	}
	if n.ID != "n1" || n.Cluster != "edge" || n.UserAgent != "envoy" {
		t.Errorf("read %+v", n)
	}
	m, err := n.Decode()
	if err != nil || !proto.Equal(m, someNode()) {
		t.Errorf("decoded %v, %v", m, err)
	}
	if !bytes.Equal(n.Bytes(), raw) || &n.Bytes()[0] == &raw[0] {
		t.Error("the bytes differ, or are not a copy")
	}
	// gRPC reuses the message's buffer.
	clear(raw)
	if m, err = n.Decode(); err != nil || m.Id != "n1" {
		t.Error("the node aliases the buffer")
	}
}

func TestUserAgentVersion(t *testing.T) {
	built := func(v *typev3.SemanticVersion) *corev3.Node {
		return &corev3.Node{UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: v, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"build.type": structpb.NewStringValue("RELEASE")}},
		}}}
	}
	said := func(v string) *corev3.Node {
		return &corev3.Node{UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: v}}
	}
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"no version", marshal(t, &corev3.Node{UserAgentName: "envoy"}), ""},
		{"build version", marshal(t, built(&typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2})), "1.40.2"},
		{"zeros", marshal(t, built(&typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40})), "1.40.0"},
		{"all zeros", marshal(t, built(&typev3.SemanticVersion{})), "0.0.0"},
		{"largest", marshal(t, built(&typev3.SemanticVersion{MajorNumber: math.MaxUint32})), "4294967295.0.0"},
		{"only metadata", marshal(t, built(nil)), ""},
		{"text", marshal(t, said("1.76.0-dev")), "1.76.0-dev"},
		{"long text", marshal(t, said(strings.Repeat("9", 1000))), strings.Repeat("9", 128)},
		{"cut within a character", marshal(t, said(strings.Repeat("9", 127)+"é")), strings.Repeat("9", 127)},
		{"both: the last one", wire(8, wire(1, wire(1, 1)), 7, "2.0"), "2.0"},
		{"both: the last one", wire(7, "2.0", 8, wire(1, wire(1, 1))), "1.0.0"},
		{"other wire types", wire(7, 5, 8, 5), ""},
		{"other wire types inside", wire(8, wire(1, 5)), ""},
		{"a text for a number", wire(8, wire(1, wire(1, "x", 2, 4))), "0.4.0"},
	} {
		n, err := new(NodeTable).Intern(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if n.UserAgentVersion != c.want {
			t.Errorf("%s: %q, want %q", c.name, n.UserAgentVersion, c.want)
		}
	}
	for _, raw := range [][]byte{{0x42, 3, 0x0a, 9, 8}, wire(8, wire(1, []byte{0x80}))} {
		if n, err := new(NodeTable).Intern(raw); err == nil {
			t.Errorf("the malformed version %q is read as %q", raw, n.UserAgentVersion)
		}
	}
	n, err := new(NodeTable).Intern(marshal(t, &corev3.Node{UserAgentName: strings.Repeat("x", 1<<20)}))
	if err != nil || len(n.UserAgent) != maxUserAgent {
		t.Errorf("a name of %d bytes is kept, %v", len(n.UserAgent), err)
	}
}

func TestMalformedNodes(t *testing.T) {
	var table NodeTable
	for name, raw := range map[string][]byte{
		"cut":             {0x0a, 5, 'a'},
		"no tag":          {0x80},
		"field 0":         {0x00, 0x00},
		"group's end":     {0x0c},
		"invalid UTF-8":   {0x0a, 1, 0xff},
		"metadata is cut": {0x1a, 2, 0x0a, 9},
	} {
		if n, err := table.Intern(raw); err == nil || !strings.HasPrefix(err.Error(), "node: ") {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d malformed nodes are kept", table.Len())
	}
	good := marshal(t, someNode())
	if _, err := MergeDynamic(good, []byte{0x0a, 5}); err == nil {
		t.Error("a malformed later node is merged")
	}
	if _, err := MergeDynamic([]byte{0x0a, 5}, good); err == nil {
		t.Error("a malformed earlier node is merged")
	}
}

// Only the dynamic_parameters of a later node count (P1).
func TestP1_MergeDynamic(t *testing.T) {
	first := someNode()
	first.DynamicParameters = params("a", "1", "b", "2")
	later := &corev3.Node{Id: "other", Cluster: "other", ClientFeatures: []string{"f9"}, DynamicParameters: params("a", "3")}
	got, err := MergeDynamic(marshal(t, first), marshal(t, later))
	if err != nil {
		t.Fatal(err)
	}
	want := someNode()
	want.DynamicParameters = later.DynamicParameters
	m := new(corev3.Node)
	if err := proto.Unmarshal(got, m); err != nil || !proto.Equal(m, want) {
		t.Errorf("merged to %v, %v", m, err)
	}

	// A different node with the same parameters does not allocate.
	raw := marshal(t, first)
	later.DynamicParameters = first.DynamicParameters
	if got, err = MergeDynamic(raw, marshal(t, later)); err != nil || &got[0] != &raw[0] || len(got) != len(raw) {
		t.Errorf("equal parameters made another node, %v", err)
	}

	// a later node without parameters
	later.DynamicParameters = nil
	if got, err = MergeDynamic(raw, marshal(t, later)); err != nil {
		t.Fatal(err)
	}
	m = new(corev3.Node)
	if err := proto.Unmarshal(got, m); err != nil || !proto.Equal(m, someNode()) {
		t.Errorf("merged to %v, %v", m, err)
	}
	if !bytes.Equal(raw, marshal(t, first)) {
		t.Error("the first node's bytes changed")
	}
}

func TestP58_WithFeatures(t *testing.T) {
	raw := marshal(t, someNode())
	was := bytes.Clone(raw)
	m := new(corev3.Node)
	if err := proto.Unmarshal(WithFeatures(raw, "x", "y"), m); err != nil {
		t.Fatal(err)
	}
	want := someNode()
	want.ClientFeatures = []string{"x", "y"}
	if !proto.Equal(m, want) {
		t.Errorf("%v", m)
	}
	m = new(corev3.Node)
	if err := proto.Unmarshal(WithFeatures(raw), m); err != nil || len(m.ClientFeatures) != 0 || m.Id != "n1" {
		t.Errorf("without features: %v, %v", m, err)
	}
	if !bytes.Equal(raw, was) {
		t.Error("the node's bytes changed")
	}
}

func TestNodesAreInterned(t *testing.T) {
	var table NodeTable
	raw := marshal(t, someNode())
	other := append(bytes.Clone(raw), protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), "1.30")...)
	a, err := table.Intern(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := table.Intern(other)
	if err != nil {
		t.Fatal(err)
	}
	if a == b || table.Len() != 2 {
		t.Errorf("two contents, %d nodes", table.Len())
	}
	if n, err := table.Intern(bytes.Clone(raw)); n != a || err != nil {
		t.Errorf("another node for the same content, %v", err)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// Concurrent calls of Intern with one content return one node.
func TestNodesAreInternedOnceInARace(t *testing.T) {
	for round := range 50 {
		var table NodeTable
		raw := marshal(t, &corev3.Node{Id: fmt.Sprint(round)})
		nodes := make([]*Node, 8)
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() { nodes[i], _ = table.Intern(raw) })
		}
		wg.Wait()
		for _, n := range nodes {
			if n == nil || n != nodes[0] {
				t.Fatal("several nodes for one content")
			}
		}
	}
}

// An unused node leaves the table. A node in use keeps its identity.
func TestUnusedNodesAreReleased(t *testing.T) {
	var table NodeTable
	keep, err := table.Intern([]byte("\x0a\x04kept"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := table.Intern(marshal(t, &corev3.Node{Id: fmt.Sprint("n", i), Cluster: strings.Repeat("c", 100)})); err != nil {
			t.Fatal(err)
		}
	}
	// Cleanups run on a goroutine of the runtime after a garbage collection.
	for i := 0; table.Len() > 1; i++ {
		if i == 10000 {
			t.Fatalf("%d nodes are left, 1 is in use", table.Len())
		}
		runtime.GC()
		runtime.Gosched()
	}
	again, err := table.Intern([]byte("\x0a\x04kept"))
	if err != nil || again != keep {
		t.Errorf("the node that was held is another now, %v", err)
	}
	runtime.KeepAlive(keep)
}

func FuzzNode(f *testing.F) {
	f.Add([]byte("\x0a\x02n1\x12\x04edge"), []byte("\x62\x05\x0a\x01a\x12\x00"))
	f.Add([]byte("\x0a\x05a"), []byte{})
	f.Add([]byte("\x52\x01x\x52\x01y\x62\x03\x0a\x01a"), []byte("\x62\x00"))
	f.Fuzz(func(t *testing.T, raw, later []byte) {
		var table NodeTable
		n, err := table.Intern(raw)
		m := new(corev3.Node)
		if bad := proto.Unmarshal(raw, m); (bad == nil) != (err == nil) {
			t.Fatalf("Intern: %v, Unmarshal: %v", err, bad)
		}
		if err != nil {
			return
		}
		if n.ID != m.Id || n.Cluster != m.Cluster || n.UserAgent != clipUserAgent([]byte(m.UserAgentName)) {
			t.Fatalf("%+v of %v", n, m)
		}
		featured := new(corev3.Node)
		if err := proto.Unmarshal(WithFeatures(raw, "z"), featured); err != nil {
			t.Fatal(err)
		}
		// WithFeatures also removes unknown fields that have the number of client_features.
		m.ProtoReflect().SetUnknown(nil)
		featured.ProtoReflect().SetUnknown(nil)
		if m.ClientFeatures = []string{"z"}; !proto.Equal(featured, m) {
			t.Fatalf("with features: %v, want %v", featured, m)
		}
		if proto.Unmarshal(later, new(corev3.Node)) != nil {
			return
		}
		merged, err := MergeDynamic(raw, later)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Intern(merged); err != nil {
			t.Fatalf("the merged node: %v", err)
		}
	})
}
