package conformance

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"xdsrelay/internal/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// place is where a test runs: the variant on either side, and whether the clients have one stream
// or one per type.
type place struct {
	up, down string // "sotw" or "delta"
	ads      bool
}

func (p place) String() string {
	if p.ads {
		return p.up + "-" + p.down + "/ads"
	}
	return p.up + "-" + p.down + "/per-type"
}

// where is a choice of places.
type where func(place) bool

func anywhere(place) bool    { return true }
func downSotW(p place) bool  { return p.down == "sotw" }
func downDelta(p place) bool { return p.down == "delta" }
func upSotW(p place) bool    { return p.up == "sotw" }
func upDelta(p place) bool   { return p.up == "delta" }
func onADS(p place) bool     { return p.ads }

func both(a, b where) where { return func(p place) bool { return a(p) && b(p) } }

func places() []place {
	var out []place
	for _, up := range []string{"sotw", "delta"} {
		for _, down := range []string{"sotw", "delta"} {
			out = append(out, place{up, down, true}, place{up, down, false})
		}
	}
	return out
}

// trial is a test in one place, with its own key on a shared relay.
type trial struct {
	testing.TB
	place
	key   string
	relay *relay
	site  *site // of the key, at the relay's origin
}

// each runs a test in all these places, on relays of a profile.
func each(t *testing.T, p profile, w where, test func(c *trial)) {
	t.Parallel()
	for _, at := range places() {
		if !w(at) {
			continue
		}
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			r, control := shared(t, p, at.up)
			c := &trial{TB: t, place: at, key: newKey(t), relay: r}
			c.site = control.site(c.key)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the origin was asked: %v\nthe relay's log:\n%s", c.site.requests(""), r.said(c.key))
				}
			})
			test(c)
		})
	}
}

// keys counts them: a test that runs again (-count) gets another one.
var keys atomic.Int64

func newKey(t testing.TB) string {
	return fmt.Sprintf("%s.%d", strings.NewReplacer("/", ".", " ", "-").Replace(t.Name()), keys.Add(1))
}

// eachOwn is each with a relay that the test starts.
func eachOwn(t *testing.T, w where, test func(t *testing.T, at place)) {
	t.Parallel()
	for _, at := range places() {
		if w(at) {
			t.Run(at.String(), func(t *testing.T) {
				t.Parallel()
				test(t, at)
			})
		}
	}
}

// on is a trial on a relay of the test's own.
func on(t *testing.T, at place, r *relay, control *control) *trial {
	c := &trial{TB: t, place: at, key: newKey(t), relay: r}
	c.site = control.site(c.key)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the origin was asked: %v\nthe relay's log:\n%s", c.site.requests(""), r.said(""))
		}
	})
	return c
}

// client is a client of the trial's key and place. marks are put into the
// node's metadata.
func (c *trial) client(id string, marks ...string) *client {
	return c.clientOf(c.down, c.ads, id, marks...)
}

// served returns a client that has subscribed to names, and gets this.
func (c *trial) served(id string, k kind, want string) *client {
	c.Helper()
	cl := c.client(id)
	cl.gets(k, want)
	return cl
}

// servedAll returns a client that has subscribed to the wildcard, and gets this.
func (c *trial) servedAll(id string, k kind, want string) *client {
	c.Helper()
	cl := c.client(id)
	cl.getsAll(k, want)
	return cl
}

// byHand returns a client that has subscribed to a type, and the upstream stream on which the test
// answers.
func (c *trial) byHand(k kind, names ...string) (*client, *upstream) {
	c.Helper()
	cl := c.client("one")
	return cl, cl.byHand(k, names...)
}

// byHand subscribes to a type as the first client, and returns the upstream stream on which the test
// answers.
func (c *client) byHand(k kind, names ...string) *upstream {
	c.t.Helper()
	c.c.site.manual(k)
	c.sub(k, names...)
	c.c.site.request(c.t, k, 1)
	return c.c.site.stream(c.t, 1)
}

// clientOf is a client of another variant.
func (c *trial) clientOf(variant string, ads bool, id string, marks ...string) *client {
	node := &corev3.Node{Id: id, Cluster: c.key, UserAgentName: "conformance"}
	for _, m := range marks {
		if node.Metadata == nil {
			node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		node.Metadata.Fields[m] = structpb.NewBoolValue(true)
	}
	return &client{t: c.TB, c: c, delta: variant == "delta", ads: ads, node: node, conn: c.relay.conn,
		streams: make(map[kind]*stream), states: make(map[kind]*typeState)}
}

// alone gives a client its own connection.
func (c *client) alone(opts ...grpc.DialOption) *client {
	c.t.Helper()
	c.conn = xdstest.Dial(c.t, c.c.relay.Address, nil, opts...)
	return c
}

// names returns n names: "a0", "a1" and so on.
func names(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// errorf describes a condition that does not hold yet.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }
