package xds

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

func decodes(raw []byte) bool { return proto.Unmarshal(raw, new(corev3.Node)) == nil }

func nestedNode() *corev3.Node {
	n := someNode()
	n.DynamicParameters = params("k", "v")
	n.Metadata.Fields["l"] = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1), structpb.NewBoolValue(true), structpb.NewNullValue()}})
	n.Metadata.Fields["s"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"ä": structpb.NewStringValue("ö")}})
	n.Extensions = []*corev3.Extension{{Name: "x", Version: nil}}
	return n
}

// checkWellFormed accepts a node if and only if protobuf can decode it.
func TestWellFormedIsDecodable(t *testing.T) {
	good := marshal(t, nestedNode())
	if err := checkWellFormed(nodeSchema(), good, maxNested); err != nil {
		t.Fatal(err)
	}
	both := [2]int{}
	rapid.Check(t, func(t *rapid.T) {
		raw := bytes.Clone(good)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				raw[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				raw[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			case 2:
				raw = raw[:max(1, at)]
			case 3:
				num := protowire.Number(rapid.IntRange(1, 14).Draw(t, "field"))
				raw = protowire.AppendBytes(protowire.AppendTag(raw, num, protowire.BytesType), rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "bytes"))
			}
		}
		err, can := checkWellFormed(nodeSchema(), raw, maxNested), decodes(raw)
		if (err == nil) != can {
			t.Fatalf("%x: %v; can be decoded: %v", raw, err, can)
		}
		if can {
			both[0]++
		} else {
			both[1]++
		}
	})
	if both[0] == 0 || both[1] == 0 {
		t.Errorf("%d could be decoded, and %d not", both[0], both[1])
	}
}

// The limit on nesting is protobuf's.
func TestWellFormedNests(t *testing.T) {
	raw := []byte(nil)
	for levels := 1; levels <= 3335; levels++ { // a struct in a value in a map entry
		v := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), raw)
		raw = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), v))
		if !slices.Contains([]int{2499, 2500, 2501, 3332, 3333, 3334, 3335}, levels) {
			continue
		}
		node := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), raw)
		if err := checkWellFormed(nodeSchema(), node, maxNested); (err == nil) != decodes(node) {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

// BenchmarkParseNode measures a first request's node, which the relay parses before it knows the
// client.
func BenchmarkParseNode(b *testing.B) {
	l := &structpb.ListValue{Values: make([]*structpb.Value, 500_000)}
	for i := range l.Values {
		l.Values[i] = &structpb.Value{}
	}
	for _, tc := range []struct {
		name string
		node *corev3.Node
	}{
		{"usual", someNode()},
		{"dense", &corev3.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewListValue(l)}}}},
		{"long", &corev3.Node{Id: strings.Repeat("n", 1<<20)}},
	} {
		raw, err := proto.Marshal(tc.node)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parseNode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
