package integration

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// This many attempts with full jitter take longer than the maximal backoff, with a probability of
// error of one in a million. Without a backoff they take no time (P54).
const (
	longestWait = 60 * time.Millisecond
	manyWaits   = 12
)

// troubled is a relay with an origin that the test can replace by a faulty one.
type troubled struct {
	*relay
	t       *testing.T
	v       fleet.Variant // upstream
	good    *xdstest.Origin
	wire    *xdstest.Proxy
	clients []*fleet.Client // connected before the fault

	attempts func() int // at the faulty origin; nil: not counted
}

// newTroubled starts two Envoys that have the origin's resources.
func newTroubled(t *testing.T, v fleet.Variant, secured bool, more xdstest.Config) *troubled {
	t.Helper()
	w := &troubled{t: t, v: v}
	first := map[string]any{}
	if secured {
		i := issue(t)
		cert := i.ca.Pair(t, tlstest.CN("origin"), tlstest.Loopback()).TLS(t)
		w.good = origin(t, xdstest.Linear, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
		first["tls"] = map[string]any{"ca_file": filepath.Join(i.dir, "ca")}
	} else {
		w.good = origin(t, xdstest.Linear)
	}
	w.good.Put("edge", xdstest.Web(1)...)
	w.wire = xdstest.StartProxy(t, w.good.Address)
	first["address"] = w.wire.Address
	s := xdstest.Config{
		"upstream.variant":  v.String(),
		"upstream.origins":  []map[string]any{first},
		"upstream.backoff":  map[string]any{"base": "20ms", "max": longestWait.String()},
		"downstream.drain":  "50ms",
		"upstream.idle_ttl": "1h",
	}
	if second, ok := more["second"]; ok {
		s["upstream.origins"] = append([]map[string]any{first}, map[string]any{"address": second})
		more = maps.Clone(more)
		delete(more, "second")
	}
	maps.Copy(s, more)
	w.relay = serve(t, "", s)
	w.clients = envoys(t, w.Address, "edge")
	waitAll(t, w.clients, "what the origin has", hasAll(xdstest.Web(1)...))
	return w
}

// replaced makes new connections lead to another address.
func (w *troubled) replaced(by string) {
	w.wire.SetTarget(by)
	w.wire.Cut()
}

// well ends the fault.
func (w *troubled) well() {
	w.wire.SetFault(xdstest.Fault{})
	w.replaced(w.good.Address)
}

// backsOff waits for attempts, and checks that they are not made as fast as possible.
func (w *troubled) backsOff() {
	w.t.Helper()
	if w.attempts == nil {
		return
	}
	xdstest.Eventually(w.t, "an attempt", xdstest.Holds(func() bool { return w.attempts() > 0 }))
	began, before := time.Now(), w.attempts()
	xdstest.Eventually(w.t, "attempts", xdstest.Holds(func() bool { return w.attempts() > before+manyWaits }))
	if n, took := w.attempts()-before, time.Since(began); took < longestWait {
		w.t.Errorf("%d attempts within %v", n, took)
	}
}

// come starts new clients, which must not be refused.
func (w *troubled) come(of string) []*fleet.Client {
	w.t.Helper()
	var out []*fleet.Client
	for _, v := range variants {
		out = append(out, client(w.t, w.Address, fleet.ClientConfig{
			Node: node(fmt.Sprint(of, "-", v), "edge"), Variant: v, Behaviour: fleet.Envoy, NoReconnect: true}))
	}
	return out
}

// oneStream fails the test if a client needed more than one stream.
func oneStream(t testing.TB, clients ...*fleet.Client) {
	t.Helper()
	for _, c := range clients {
		if n := c.Counters().Streams; n != 1 {
			t.Errorf("%s needed %d streams: %v", c, n, c.LastError())
		}
	}
}

// troubles are faults in which the origin sends no resources. The resources from before stay held.
var troubles = []struct {
	name    string
	secured bool
	begin   func(t *testing.T, w *troubled)
}{
	{"dead", false, func(t *testing.T, w *troubled) {
		before, _ := w.wire.Counts()
		w.attempts = func() int { ever, _ := w.wire.Counts(); return ever - before }
		w.replaced(xdstest.FreeAddress(t))
	}},
	{"accepts and says nothing", false, func(t *testing.T, w *troubled) { w.replaced(xdstest.StartDeaf(t)) }},
	{"hangs in the TLS handshake", true, func(t *testing.T, w *troubled) { w.replaced(xdstest.StartDeaf(t)) }},
	{"UNAVAILABLE", false, endsStreams(codes.Unavailable)},
	{"PERMISSION_DENIED", false, endsStreams(codes.PermissionDenied)},
	{"UNIMPLEMENTED", false, endsStreams(codes.Unimplemented)},
	{"OK and nothing else", false, endsStreams(codes.OK)},
}

// endsStreams makes the origin end each stream at once with this code.
func endsStreams(code codes.Code) func(t *testing.T, w *troubled) {
	return func(t *testing.T, w *troubled) {
		f := xdstest.StartScriptedOrigin(t)
		f.EndStreams(ending(code))
		w.attempts = f.Streams
		w.replaced(f.Address)
	}
}

// ending is the status of an ended stream, possibly OK.
type ending codes.Code

func (e ending) Error() string              { return codes.Code(e).String() }
func (e ending) GRPCStatus() *status.Status { return status.New(codes.Code(e), "go away") }

// P53, P54: whatever an origin does instead of answering, streams stay open and new clients receive
// held resources. Attempts are not made as fast as possible. Changes made meanwhile arrive once the
// origin is well.
func TestP53_TroubledOrigin(t *testing.T) {
	t.Parallel()
	for _, tc := range troubles {
		for _, v := range variants {
			t.Run(tc.name+"/"+v.String(), func(t *testing.T) {
				t.Parallel()
				w := newTroubled(t, v, tc.secured, nil)
				tc.begin(t, w)
				xdstest.Eventually(t, "the loss in /keys", xdstest.Holds(func() bool { return !w.keys()[0].Upstream.Connected }))
				w.backsOff()
				late := w.come("late")
				waitAll(t, late, "what is held", hasAll(xdstest.Web(1)...))
				w.good.Put("edge", xdstest.Web(2)...)
				w.well()
				everyone := append(late, w.clients...)
				waitAll(t, everyone, "what changed meanwhile", hasAll(xdstest.Web(2)...))
				oneStream(t, everyone...)
			})
		}
	}
}

// P56: if an origin ends every stream, the next one takes over. The key returns to the first
// once it is well. Until then the first is probed, but not as fast as possible (P54).
func TestP56_TroubledFirstOrigin(t *testing.T) {
	t.Parallel()
	for _, tc := range troubles[3:6] {
		for _, v := range variants {
			t.Run(tc.name+"/"+v.String(), func(t *testing.T) {
				t.Parallel()
				second, seconds := beside(t)
				w := newTroubled(t, v, false, xdstest.Config{"second": second.Address})
				tc.begin(t, w)
				waitAll(t, w.clients, "what the second origin has", seconds)
				late := w.come("late")
				waitAll(t, late, "what the second origin has", seconds)
				w.backsOff()
				w.good.Put("edge", xdstest.Web(2)...)
				w.well()
				everyone := append(late, w.clients...)
				waitAll(t, everyone, "what the first origin has", all(hasAll(xdstest.Web(2)...), hasNot(resource.ClusterType, "second")))
				oneStream(t, everyone...)
			})
		}
	}
}
