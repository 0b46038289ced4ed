package fanout

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	_ "xdsrelay/internal/anytypes"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// restFixture is a serverFixture that is polled.
type restFixture struct {
	*serverFixture
	base string
}

// newREST is a serverFixture with a REST listener, of these gates; without any, one that
// lets everybody in.
func newREST(t *testing.T, change func(*Options), gates ...*listener.Gate) *restFixture {
	t.Helper()
	return restOf(t, newServerFixture(t, func(o *Options) {
		o.LongPoll = time.Hour
		if change != nil {
			change(o)
		}
	}), gates...)
}

func restOf(t *testing.T, r *serverFixture, gates ...*listener.Gate) *restFixture {
	t.Helper()
	if len(gates) == 0 {
		gates = []*listener.Gate{{Key: "downstream", Secrets: config.SecretsMTLS}}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.srv.ServeREST(ctx, l, Keepalive{Time: time.Minute, Timeout: time.Minute}, gates...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &restFixture{serverFixture: r, base: "http://" + l.Addr().String()}
}

// protocols are what REST is spoken in.
var protocols = []string{"http1", "h2c"}

// web is a client that speaks the protocol, with connections of its own.
func (r *restFixture) web(protocol string) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(protocol == "http1")
	tr.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// reply is what a poll got.
type reply struct {
	status int
	header http.Header
	body   []byte
	proto  int
	closes bool // the connection
}

// post sends any body to a path.
func (r *restFixture) post(ctx context.Context, c *http.Client, path string, body []byte) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return r.do(c, req)
}

func (r *restFixture) do(c *http.Client, req *http.Request) (*reply, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	b, err := io.ReadAll(resp.Body)
	return &reply{resp.StatusCode, resp.Header, b, resp.ProtoMajor, resp.Close}, err
}

// asEnvoy is a poll's body as Envoy writes it, with the names of the fields as
// they stand in the proto file.
func asEnvoy(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// envoyPoll is a poll of Envoy's.
func envoyPoll(n *corev3.Node, url xds.TypeURL, version string, names ...string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(url), VersionInfo: version, ResourceNames: names}
}

// ask polls for a type, with this version, and waits for the reply.
func (r *restFixture) ask(c *http.Client, url xds.TypeURL, version string, names ...string) *reply {
	r.t.Helper()
	return <-r.begin(xdstest.Context(r.t), c, url, version, names...)
}

// begin polls; the channel has the reply, nil if there was none.
func (r *restFixture) begin(ctx context.Context, c *http.Client, url xds.TypeURL, version string, names ...string) <-chan *reply {
	return r.beginAs(ctx, c, node("n"), url, version, names...)
}

func (r *restFixture) beginAs(ctx context.Context, c *http.Client, n *corev3.Node, url xds.TypeURL, version string, names ...string) <-chan *reply {
	r.t.Helper()
	return r.send(ctx, c, envoyPoll(n, url, version, names...))
}

func (r *restFixture) send(ctx context.Context, c *http.Client, q *discoveryv3.DiscoveryRequest) <-chan *reply {
	r.t.Helper()
	out := make(chan *reply, 1)
	path, body := xds.TypeOf(xds.TypeURL(q.TypeUrl)).REST, asEnvoy(r.t, q)
	go func() {
		got, err := r.post(ctx, c, path, body)
		if err != nil {
			got = nil
		}
		out <- got
	}()
	return out
}

// refuse polls with a refusal of what was given; the channel has the reply, nil if
// there was none.
func (r *restFixture) refuse(c *http.Client, url xds.TypeURL, given string, names ...string) <-chan *reply {
	r.t.Helper()
	q := envoyPoll(node("n"), url, "", names...)
	q.ResponseNonce, q.ErrorDetail = given, &rpcstatus.Status{Code: 3, Message: "no"}
	return r.send(xdstest.Context(r.t), c, q)
}

// response reads a reply with resources, as Envoy does.
func (r *restFixture) response(got *reply) *discoveryv3.DiscoveryResponse {
	r.t.Helper()
	if got == nil {
		r.t.Fatal("no reply")
	}
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
		r.t.Fatalf("%d %v: %s", got.status, got.header, got.body)
	}
	m := new(discoveryv3.DiscoveryResponse)
	if err := protojson.Unmarshal(got.body, m); err != nil {
		r.t.Fatalf("%v: %s", err, got.body)
	}
	return m
}

// holds are the names of the resources in a reply, in its order.
func (r *restFixture) holds(got *reply) string {
	r.t.Helper()
	s := ""
	for _, a := range r.response(got).Resources {
		m, err := a.UnmarshalNew()
		if err != nil {
			r.t.Fatal(err)
		}
		f := m.ProtoReflect().Descriptor().Fields().ByNumber(1)
		s += m.ProtoReflect().Get(f).String() + " "
	}
	return s
}

// refused fails unless a reply refuses, with this status, for a reason.
func (r *restFixture) refused(got *reply, status int) failure {
	r.t.Helper()
	if got == nil {
		r.t.Fatal("no reply")
	}
	var f failure
	if err := json.Unmarshal(got.body, &f); err != nil || got.status != status || f.Reason == "" || f.Error == "" {
		r.t.Fatalf("%d %s, %v; want %d", got.status, got.body, err, status)
	}
	return f
}

// waiting waits until so many polls are being answered.
func (r *restFixture) waiting(n int) {
	r.t.Helper()
	r.eventually(func() bool {
		asked := 0 // those that have their pollers
		for _, p := range r.srv.pollers.all() {
			r.srv.pollers.mu.Lock()
			asked += p.polls
			r.srv.pollers.mu.Unlock()
		}
		return len(r.srv.polls.all()) == n && asked == n
	})
}

// members are those of a group.
func (r *restFixture) members(cluster string) int {
	g := r.house.Group(cluster)
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return len(g.Members)
}
