package resttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	_ "xdsrelay/internal/anytypes"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Client polls a REST listener, and fails the test where it must.
type Client struct {
	T    testing.TB
	Base string // "http://" and the listener's address
}

// Protocols are those by which polls come.
var Protocols = []string{"http1", "h2c"}

// EachProtocol runs a test for each of Protocols.
func EachProtocol(t *testing.T, f func(t *testing.T, protocol string)) {
	for _, protocol := range Protocols {
		t.Run(protocol, func(t *testing.T) { f(t, protocol) })
	}
}

// HTTP returns an HTTP client that speaks the protocol, with connections of its own.
func (r *Client) HTTP(protocol string) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(protocol == "http1")
	tr.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
	r.T.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Dial opens a plain connection to the listener.
func (r *Client) Dial() net.Conn {
	r.T.Helper()
	c := xdstest.Must(net.Dial("tcp", strings.TrimPrefix(r.Base, "http://")))(r.T)
	r.T.Cleanup(func() { _ = c.Close() }) // closed by the server, as a rule
	xdstest.NoError(r.T, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// Reply is what a poll got.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
	Proto  int  // major version of HTTP
	Closes bool // the connection
}

// Failure is the body of a reply that refuses.
type Failure struct {
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

// Post sends a body to a path.
func (r *Client) Post(ctx context.Context, c *http.Client, path string, body []byte) (*Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return r.Do(c, req)
}

// Do sends a request.
func (r *Client) Do(c *http.Client, req *http.Request) (*Reply, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	b, err := io.ReadAll(resp.Body)
	return &Reply{resp.StatusCode, resp.Header, b, resp.ProtoMajor, resp.Close}, err
}

// Body is a poll's body as Envoy writes it, with the field names of the proto file.
func Body(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b := xdstest.Must(protojson.MarshalOptions{UseProtoNames: true}.Marshal(m))(t)
	return b
}

// Node is a node of the cluster edge.
func Node(id string) *corev3.Node { return &corev3.Node{Id: id, Cluster: "edge"} }

// Request is a poll as Envoy sends it.
func Request(n *corev3.Node, url xds.TypeURL, version string, names ...string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(url), VersionInfo: version, ResourceNames: names}
}

// Ask polls for a type as node n of the cluster edge, with this version, and waits for the reply.
func (r *Client) Ask(c *http.Client, url xds.TypeURL, version string, names ...string) *Reply {
	r.T.Helper()
	return <-r.Begin(xdstest.Context(r.T), c, url, version, names...)
}

// Begin polls like Ask. The channel has the reply; nil: there was none.
func (r *Client) Begin(ctx context.Context, c *http.Client, url xds.TypeURL, version string, names ...string) <-chan *Reply {
	return r.BeginAs(ctx, c, Node("n"), url, version, names...)
}

// BeginAs polls as another node.
func (r *Client) BeginAs(ctx context.Context, c *http.Client, n *corev3.Node, url xds.TypeURL, version string, names ...string) <-chan *Reply {
	r.T.Helper()
	return r.Send(ctx, c, Request(n, url, version, names...))
}

// Send polls. The channel has the reply; nil: there was none.
func (r *Client) Send(ctx context.Context, c *http.Client, q *discoveryv3.DiscoveryRequest) <-chan *Reply {
	r.T.Helper()
	out := make(chan *Reply, 1)
	path, body := xds.TypeOf(xds.TypeURL(q.TypeUrl)).REST, Body(r.T, q)
	go func() {
		got, err := r.Post(ctx, c, path, body)
		if err != nil {
			got = nil
		}
		out <- got
	}()
	return out
}

// Nack polls with a NACK of the version given. The channel has the reply; nil: there was none.
func (r *Client) Nack(c *http.Client, url xds.TypeURL, given string, names ...string) <-chan *Reply {
	r.T.Helper()
	q := Request(Node("n"), url, "", names...)
	q.ResponseNonce, q.ErrorDetail = given, &rpcstatus.Status{Code: 3, Message: "no"}
	return r.Send(xdstest.Context(r.T), c, q)
}

// Response reads a reply with resources, as Envoy does.
func (r *Client) Response(got *Reply) *discoveryv3.DiscoveryResponse {
	r.T.Helper()
	if got == nil {
		r.T.Fatal("no reply")
	}
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "application/json" {
		r.T.Fatalf("%d %v: %s", got.Status, got.Header, got.Body)
	}
	m := new(discoveryv3.DiscoveryResponse)
	if err := protojson.Unmarshal(got.Body, m); err != nil {
		r.T.Fatalf("%v: %s", err, got.Body)
	}
	return m
}

// Holds returns the names of the resources in a reply, in its order, each with a space.
func (r *Client) Holds(got *Reply) string {
	r.T.Helper()
	s := ""
	for _, a := range r.Response(got).Resources {
		m := xdstest.Must(a.UnmarshalNew())(r.T)
		f := m.ProtoReflect().Descriptor().Fields().ByNumber(1)
		s += m.ProtoReflect().Get(f).String() + " "
	}
	return s
}

// Refused fails the test unless a reply refuses, with this status, for a reason.
func (r *Client) Refused(got *Reply, status int) Failure {
	r.T.Helper()
	if got == nil {
		r.T.Fatal("no reply")
	}
	var f Failure
	if err := json.Unmarshal(got.Body, &f); err != nil || got.Status != status || f.Reason == "" || f.Error == "" {
		r.T.Fatalf("%d %s, %v; want %d", got.Status, got.Body, err, status)
	}
	return f
}
