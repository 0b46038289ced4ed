package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	_ "xdsrelay/internal/anytypes" // what resources in files are made of
	"xdsrelay/internal/xds"
)

// decoders read the DiscoveryResponses of a file, by how its name ends (P80).
// Only a YAML file can hold several.
var decoders = map[string]func([]byte) ([]*discoveryv3.DiscoveryResponse, error){
	".json":      decodeJSON,
	".yaml":      decodeYAML,
	".yml":       decodeYAML,
	".pb":        decodeBinary,
	".pb_text":   decodeText,
	".textproto": decodeText,
}

func decodeJSON(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	m := new(discoveryv3.DiscoveryResponse)
	err := protojson.Unmarshal(raw, m)
	return []*discoveryv3.DiscoveryResponse{m}, place(err, raw, nil)
}

func decodeYAML(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
	docs, err := yamlDocuments(raw)
	if err != nil {
		return nil, err
	}
	var out []*discoveryv3.DiscoveryResponse
	for _, d := range docs {
		m := new(discoveryv3.DiscoveryResponse)
		if err := protojson.Unmarshal(d.json, m); err != nil {
			return nil, place(err, d.json, d)
		}
		out = append(out, m)
	}
	return out, nil
}

func decodeText(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
	m := new(discoveryv3.DiscoveryResponse)
	err := prototext.Unmarshal(raw, m)
	return []*discoveryv3.DiscoveryResponse{m}, place(err, nil, nil)
}

func decodeBinary(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
	m := new(discoveryv3.DiscoveryResponse)
	err := proto.Unmarshal(raw, m)
	return []*discoveryv3.DiscoveryResponse{m}, place(err, nil, nil)
}

// section is a DiscoveryResponse of a file, cut into resources.
type section struct {
	url       xds.TypeURL
	version   string
	resources []*xds.Resource
}

// errNoResponse is the fault of an empty file as well: one that is just being
// written is empty at first.
var errNoResponse = errors.New("no DiscoveryResponse: neither type_url nor resources")

// parseFile reads a file's content, with the faults of P18 and P28 as if an
// origin had sent it. Resources equal to those that held returns are shared.
func parseFile(ext string, raw []byte, held func(xds.TypeURL, string) *xds.Resource) ([]*section, error) {
	responses, err := decoders[ext](raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", xds.ErrUnreadable, err)
	}
	if len(responses) == 0 {
		return nil, errNoResponse
	}
	var out []*section
	seen := make(map[xds.TypeURL]map[string]bool)
	for _, m := range responses {
		s, err := cutResponse(m, held)
		if err != nil {
			return nil, err
		}
		if seen[s.url] == nil {
			seen[s.url] = make(map[string]bool)
		}
		for _, r := range s.resources {
			if seen[s.url][r.Name] {
				return nil, fmt.Errorf("%w: %q", xds.ErrTwice, r.Name)
			}
			seen[s.url][r.Name] = true
		}
		out = append(out, s)
	}
	return out, nil
}

func cutResponse(m *discoveryv3.DiscoveryResponse, held func(xds.TypeURL, string) *xds.Resource) (*section, error) {
	if m.TypeUrl == "" { // files for Envoy need none
		if len(m.Resources) == 0 {
			return nil, errNoResponse
		}
		url, err := typeOfFirst(m)
		if err != nil {
			return nil, err
		}
		m.TypeUrl = url
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", xds.ErrUnreadable, err)
	}
	r, err := xds.ParseResponse(xds.SotW, wire)
	if err != nil {
		return nil, err
	}
	s := &section{url: r.TypeURL, version: r.Version}
	t := xds.TypeOf(r.TypeURL)
	for i := range r.Resources {
		raw := &r.Resources[i]
		if !raw.HasBody() {
			return nil, fmt.Errorf("%w: resource %q has no body", xds.ErrUnreadable, raw.Name)
		}
		s.resources = append(s.resources, raw.Take(t, held(t.URL, raw.Name)))
	}
	return s, nil
}

// typeOfFirst is the type of a response that does not say it.
func typeOfFirst(m *discoveryv3.DiscoveryResponse) (string, error) {
	first := m.Resources[0]
	if !strings.HasSuffix(first.GetTypeUrl(), "/envoy.service.discovery.v3.Resource") {
		return first.GetTypeUrl(), nil
	}
	wrapped := new(discoveryv3.Resource)
	if err := proto.Unmarshal(first.GetValue(), wrapped); err != nil {
		return "", fmt.Errorf("%w: %w", xds.ErrUnreadable, xds.Plain(err))
	}
	return wrapped.GetResource().GetTypeUrl(), nil
}
