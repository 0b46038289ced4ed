package rest

import (
	"encoding/json"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Whatever an origin sends as a resource's body is given to polls as valid JSON,
// or refused with an error (P70).
func FuzzRESTDocument(f *testing.F) {
	urls := []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.EndpointType, xds.RouteType, xds.SecretType, xds.RuntimeType, "t/of.nobody"}
	seed := func(of uint8, m proto.Message) {
		b := xdstest.Must(proto.Marshal(m))(f)
		f.Add(of, b)
	}
	seed(0, &clusterv3.Cluster{Name: "c", AltStatName: "\u2028\"\\"})
	filter := xdstest.Must(anypb.New(&listenerv3.Listener{Name: "inner"}))(f)
	seed(1, &listenerv3.Listener{Name: "l", ListenerFilters: []*listenerv3.ListenerFilter{{Name: "f", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: filter}}}})
	seed(1, &listenerv3.Listener{ListenerFilters: []*listenerv3.ListenerFilter{{ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "t/of.nobody", Value: []byte("x")}}}}})
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "not \xff text"))
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 60000, protowire.BytesType), "a field that nobody knows"))
	f.Add(uint8(5), []byte{0x12, 0x02, 0x0a, 0x00})                                                 // a struct without values
	f.Add(uint8(5), append([]byte{0x12, 0x12, 0x0a, 0x10, 0x0a, 0x01, 'k', 0x12, 0x0b, 0x11, 0, 0}, // a number that is none
		0, 0, 0, 0, 0xf8, 0x7f, 0, 0))
	f.Add(uint8(6), []byte("x"))
	f.Add(uint8(2), []byte{0xff})
	f.Fuzz(func(t *testing.T, of uint8, value []byte) {
		url := urls[int(of)%len(urls)]
		wire := xdstest.Must(proto.Marshal(&anypb.Any{TypeUrl: string(url), Value: value}))(t)
		r, err := xds.NewResource(xds.TypeOf(url), "name", wire)
		if err != nil {
			return
		}
		const head = `{"resources":[`
		b, whole, err := appendJSON([]byte(head), r)
		if err != nil {
			return
		}
		if b = append(b, "]}"...); !json.Valid(b) {
			t.Fatalf("of %s %x comes %q, whole: %v", url, value, b, whole)
		}
	})
}
