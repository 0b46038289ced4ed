package integration

import (
	"bytes"
	"context"
	"io"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// polled is a reply to a poll.
type polled struct {
	status int
	header http.Header
	body   []byte
	answer *discoveryv3.DiscoveryResponse // with status 200
}

// poll posts a request in Envoy's format: canonical JSON with the field names of the proto file.
func poll(ctx context.Context, c *http.Client, base string, typ string, q *discoveryv3.DiscoveryRequest) (*polled, error) {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(q)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+xds.TypeOf(xds.TypeURL(typ)).REST, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	out := &polled{status: resp.StatusCode, header: resp.Header}
	if out.body, err = io.ReadAll(resp.Body); err != nil || out.status != http.StatusOK {
		return out, err
	}
	out.answer = new(discoveryv3.DiscoveryResponse)
	return out, protojson.Unmarshal(out.body, out.answer)
}

// ask polls once, and accepts any reply.
func (r *relay) ask(c *http.Client, n *corev3.Node, typ string, version string, names ...string) *polled {
	r.t.Helper()
	out, err := poll(xdstest.Context(r.t), c, "http://"+r.RESTAddress, typ, &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(typ), VersionInfo: version, ResourceNames: names})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
