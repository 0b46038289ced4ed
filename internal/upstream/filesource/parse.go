package filesource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	_ "xdsrelay/internal/anytypes" // the types of resources in files
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// decoders maps the extension of a file to the function that reads the
// DiscoveryResponses in it (P80). Only a YAML file can have several: one per document.
var decoders = map[string]func([]byte) ([]*discoveryv3.DiscoveryResponse, error){
	".json":      decodeJSON,
	".yaml":      decodeYAML,
	".yml":       decodeYAML,
	".pb":        decodeOne(proto.Unmarshal),
	".pb_text":   decodeOne(prototext.Unmarshal),
	".textproto": decodeOne(prototext.Unmarshal),
}

// decodeOne returns a decoder of files that have one response. Errors have no values of the file,
// which may be secrets.
func decodeOne(unmarshal func([]byte, proto.Message) error) func([]byte) ([]*discoveryv3.DiscoveryResponse, error) {
	return func(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
		m := new(discoveryv3.DiscoveryResponse)
		if err := unmarshal(raw, m); err != nil {
			return nil, redact.Parsing(xds.PlainError(err))
		}
		return []*discoveryv3.DiscoveryResponse{m}, nil
	}
}

func decodeJSON(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errNoResponse
	}
	return decodeOne(protojson.Unmarshal)(raw)
}

// yamlSeparator starts another document of a YAML file.
var yamlSeparator = regexp.MustCompile(`(?m)^---(?:\s|$)`)

// decodeYAML reads all documents that are not empty. sigs.k8s.io/yaml would only read the
// first one.
func decodeYAML(raw []byte) (out []*discoveryv3.DiscoveryResponse, err error) {
	for n, text := range yamlSeparator.Split(string(raw), -1) {
		doc, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil && strings.Contains(text, "<<") {
			doc, err = withMerges(text, err)
		}
		if err != nil {
			reason := strings.Join(strings.Fields(err.Error()), " ") // it has several lines
			return nil, fmt.Errorf("document %d: %w", n+1, redact.Parsing(errors.New(reason)))
		}
		if string(doc) == "null" {
			continue
		}
		m := new(discoveryv3.DiscoveryResponse)
		if err := protojson.Unmarshal(doc, m); err != nil {
			return nil, inYAML(doc, err)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errNoResponse
	}
	return out, nil
}

// withMerges converts a document that the strict decoder refused with an error. That decoder takes a key
// that overrides a merged one (<<) for the same key twice.
func withMerges(text string, refused error) ([]byte, error) {
	var v any
	if err := yamlv3.Unmarshal([]byte(text), &v); err != nil {
		return nil, refused
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, refused
	}
	return doc, nil
}

// jsonPlace matches how protojson names a place in its input.
var jsonPlace = regexp.MustCompile(`^\(line \d+:\d+\): | \(line \d+:\d+\)`)

// inYAML rewrites an error of protojson. It removes the place, which is one in the JSON made from
// the YAML. It names the first unreadable resource instead.
func inYAML(doc []byte, err error) error {
	where := ""
	var response struct {
		Resources []json.RawMessage `json:"resources"`
	}
	if json.Unmarshal(doc, &response) == nil {
		for i, r := range response.Resources {
			if e := protojson.Unmarshal(r, new(anypb.Any)); e != nil {
				where, err = fmt.Sprintf("resources[%d]: ", i), e
				break
			}
		}
	}
	return redact.Parsing(errors.New(where + jsonPlace.ReplaceAllString(xds.PlainError(err).Error(), "")))
}

// section is a DiscoveryResponse of a file, cut into resources.
type section struct {
	url       xds.TypeURL
	version   string
	resources []*xds.Resource
}

// errNoResponse is also the fault of an empty file: a file that is being written is empty at
// first.
var errNoResponse = errors.New("not a DiscoveryResponse: it has neither type_url nor resources")

// parseFile reads the content of a file. A fault of an origin's response is a fault here too (P18,
// P28). A resource that equals the one that held returns is replaced by that one.
func parseFile(ext string, raw []byte, held func(xds.TypeURL, string) *xds.Resource) ([]*section, error) {
	responses, err := decoders[ext](raw)
	switch {
	case errors.Is(err, errNoResponse):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", xds.ErrUnreadable, err)
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
				return nil, fmt.Errorf("%w: %q", xds.ErrDuplicateName, r.Name)
			}
			seen[s.url][r.Name] = true
		}
		out = append(out, s)
	}
	return out, nil
}

func cutResponse(m *discoveryv3.DiscoveryResponse, held func(xds.TypeURL, string) *xds.Resource) (*section, error) {
	if m.TypeUrl == "" { // files for Envoy have no type_url
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

// typeOfFirst is the type of a response without a type_url.
func typeOfFirst(m *discoveryv3.DiscoveryResponse) (string, error) {
	first := m.Resources[0]
	if !strings.HasSuffix(first.GetTypeUrl(), "/envoy.service.discovery.v3.Resource") {
		return first.GetTypeUrl(), nil
	}
	wrapped := new(discoveryv3.Resource)
	if err := proto.Unmarshal(first.GetValue(), wrapped); err != nil {
		return "", fmt.Errorf("%w: %w", xds.ErrUnreadable, xds.PlainError(err))
	}
	return wrapped.GetResource().GetTypeUrl(), nil
}
