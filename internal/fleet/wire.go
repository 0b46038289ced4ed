package fleet

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const wrappedType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// response is a response of either variant.
type response struct {
	version    string
	typeURL    string
	nonce      string
	identifier string // control_plane.identifier
	items      []item
	removed    []string
}

// item is a resource in a response. Its slices alias the response's buffer.
type item struct {
	name    string
	version string
	typeURL string // of the body
	body    []byte // the Any's value
	hasBody bool
	refs    *refs // for types that are followed
	hash    Hash
}

// sotwResponse reads a SotW response, whose resources may be wrapped.
func sotwResponse(m *discoveryv3.DiscoveryResponse) (*response, error) {
	r := &response{version: m.VersionInfo, typeURL: m.TypeUrl, nonce: m.Nonce, identifier: m.GetControlPlane().GetIdentifier()}
	for i, a := range m.Resources {
		w := &discoveryv3.Resource{Resource: a}
		if a.TypeUrl == wrappedType {
			w.Reset()
			if err := proto.Unmarshal(a.Value, w); err != nil {
				return nil, status.Errorf(codes.Internal, "unmarshal wrapped resource %d: %v", i, err)
			}
		}
		if w.Name == "" {
			w.Name = nameOf(w.GetResource().GetValue())
		}
		r.add(w)
	}
	return r, nil
}

func deltaResponse(m *discoveryv3.DeltaDiscoveryResponse) *response {
	r := &response{version: m.SystemVersionInfo, typeURL: m.TypeUrl, nonce: m.Nonce, identifier: m.GetControlPlane().GetIdentifier(), removed: m.RemovedResources}
	for _, w := range m.Resources {
		r.add(w)
	}
	return r
}

func (r *response) add(w *discoveryv3.Resource) {
	r.items = append(r.items, item{name: w.Name, version: w.Version, typeURL: w.GetResource().GetTypeUrl(), body: w.GetResource().GetValue(), hasBody: w.Resource != nil})
}

// nameOf returns field 1 of a body; empty: it has none. Every type of the table has its name there.
func nameOf(b []byte) (name string) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return ""
		}
		if num == 1 && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			v, _ := protowire.ConsumeBytes(b[tag:])
			name = string(v)
		}
		b = b[n:]
	}
	return name
}
