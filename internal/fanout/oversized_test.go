package fanout

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// logged is a log to be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// smallRig is a rig whose responses have room for so many endpoints.
func smallRig(t *testing.T, room int, ackTimeout time.Duration) (*rig, *logged) {
	log := new(logged)
	w := newWorld(t, xds.EndpointType, xds.Delta)
	b := xds.Body{Form: xds.Form{Variant: xds.Delta}, Type: xds.EndpointType, Version: strings.Repeat("0", 32), Identifier: "replica/origin"}
	return newRig(t, func(o *Options) {
		o.AckTimeout = ackTimeout
		o.MaxResponse = nonceSize + b.Size() + room*b.Cost(w.resource("a=2"))
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	}), log
}

func (r *rig) wantMetric(line string) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.meters.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), line+"\n") {
		r.t.Fatalf("the metrics do not say %s", line)
	}
}

func TestP38_PartsOnTheWire(t *testing.T) {
	r, _ := smallRig(t, 2, time.Minute)
	r.house.group("edge").publish(update(t, xds.EndpointType, "a", "b", "c", "d", "e"))
	c := r.delta(nil)
	c.ask(xds.EndpointType, "a", "b", "c", "d", "e")
	nonces := map[string]bool{}
	for _, want := range []string{"a b ", "c d ", "e "} {
		got, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if said(got) != want || nonces[got.Nonce] {
			t.Fatalf("%q, nonce %s, want %q", said(got), got.Nonce, want)
		}
		nonces[got.Nonce] = true
		// Nothing comes before the ACK: another type is answered first.
		r.house.group("edge").publish(update(t, xds.RuntimeType, want))
		c.ask(xds.RuntimeType, want)
		c.want(want + " ")
		if s := r.srv.Clients()[0].Types[0]; s.State != Unanswered {
			t.Errorf("state %s between the parts", s.State)
		}
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: got.Nonce})
	}
	r.eventually(func() bool { return r.srv.Clients()[0].Types[0].State == Synced })
}

// P19: a client that never answers gets the parts all the same.
func TestP38_AckTimeoutOnTheWire(t *testing.T) {
	r, _ := smallRig(t, 1, 50*time.Millisecond)
	r.house.group("edge").publish(update(t, xds.EndpointType, "a", "b", "c"))
	c := r.delta(nil)
	c.ask(xds.EndpointType, "a", "b", "c")
	for _, want := range []string{"a ", "b ", "c "} {
		got, err := c.Recv()
		if err != nil || said(got) != want {
			t.Fatalf("%q, %v, want %q", said(got), err, want)
		}
	}
}

func TestP38_NotSentIsReported(t *testing.T) {
	r, log := smallRig(t, 3, time.Minute)
	g := r.house.group("edge")
	g.publish(update(t, xds.ListenerType, "a", "b"))
	var clients []*sotw
	for i := range 3 {
		c := r.sotw(nil)
		if err := c.Send(&discoveryv3.DiscoveryRequest{Node: node(fmt.Sprint("n", i)), TypeUrl: string(xds.ListenerType)}); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	recv := func(n int) {
		t.Helper()
		for _, c := range clients {
			got, err := c.Recv()
			if err != nil || len(got.Resources) != n {
				t.Fatalf("%v, %v, want %d resources", got, err, n)
			}
			if err := c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: string(xds.ListenerType), ResponseNonce: got.Nonce, VersionInfo: got.VersionInfo}); err != nil {
				t.Fatal(err)
			}
		}
	}
	status := func() (out []TypeStatus) {
		for _, c := range r.srv.Clients() {
			out = append(out, c.Types[0])
		}
		return out
	}
	each := func(ok func(s TypeStatus) bool) {
		t.Helper()
		r.eventually(func() bool {
			for _, s := range status() {
				if !ok(s) {
					return false
				}
			}
			return true
		})
	}
	recv(2)
	each(func(s TypeStatus) bool { return s.State == Synced && s.Oversized == nil })

	g.publish(update(t, xds.ListenerType, "c", "d", "e", "f", "g", "h"))
	each(func(s TypeStatus) bool {
		return s.State == Unanswered && s.Oversized != nil && s.Oversized.Bytes > r.srv.opts.MaxResponse && s.Oversized.Version != ""
	})
	r.wantMetric(`xdsrelay_downstream_oversized_total{type="LDS"} 3`)
	if n := log.count("too large"); n != 1 {
		t.Errorf("told %d times", n)
	}
	r.srv.newWatcher().look(time.Now()) // which wakes who is behind
	g.publish(update(t, xds.ListenerType, "-c", "-d", "-e", "-f", "-g", "-h"))
	each(func(s TypeStatus) bool { return s.State == Synced && s.Oversized == nil && s.Sends == 1 }) // they have what there is
	g.publish(update(t, xds.ListenerType, "a=2"))
	recv(2)
	each(func(s TypeStatus) bool { return s.State == Synced && s.Oversized == nil })
	r.wantMetric(`xdsrelay_downstream_oversized_total{type="LDS"} 3`)
}

func TestP38_AMisfitIsReported(t *testing.T) {
	r, log := smallRig(t, 1, time.Minute)
	g := r.house.group("edge")
	long := strings.Repeat("l", 100)
	g.publish(update(t, xds.EndpointType, "a", long))
	c := r.delta(nil)
	c.ask(xds.EndpointType, "a", long)
	c.want("a ")
	r.wantMetric(`xdsrelay_downstream_oversized_total{type="EDS"} 1`)
	if o := r.srv.Clients()[0].Types[0].Oversized; o == nil || o.Resource != long {
		t.Errorf("status %+v", o)
	}
	g.publish(update(t, xds.EndpointType, "a=2"))
	c.want("a ")
	if o := r.srv.Clients()[0].Types[0].Oversized; o == nil {
		t.Error("forgotten though it is not sent")
	}
	if n := log.count("too large"); n != 1 {
		t.Errorf("told %d times", n)
	}
	g.publish(update(t, xds.EndpointType, "-"+long))
	c.want("-" + long + " ")
	if o := r.srv.Clients()[0].Types[0].Oversized; o != nil {
		t.Errorf("status %+v though it is gone", o)
	}
	// The one that was asked for alone: nothing is sent, and nothing is waited for.
	g.publish(update(t, xds.EndpointType, long+"2"))
	c.ask(xds.EndpointType, long+"2")
	r.eventually(func() bool { return r.srv.Clients()[0].Types[0].Oversized != nil })
}

// P59: responses of up to 256 MiB, to the byte.
func TestP59_TheBound(t *testing.T) {
	if MaxResponse != 256<<20 {
		t.Fatalf("responses of up to %d bytes", MaxResponse)
	}
	for extra, parts := range map[int]int{0: 1, 1: 1, -1: 2} {
		w := newWorld(t, xds.EndpointType, xds.Delta)
		w.named("a", "b")
		if w.s.limit != MaxResponse {
			t.Fatalf("limit %d", w.s.limit)
		}
		w.s.limit = sizeOf(w) + extra
		w.sub("a", "b")
		n := 0
		for ; w.next() != ""; n++ {
			w.ack()
		}
		if n != parts {
			t.Errorf("%d bytes to spare: %d responses", extra, n)
		}
	}
}

// sizeOf is the size of everything in one response.
func sizeOf(w *world) int {
	b := xds.Body{Form: xds.Form{Variant: w.s.variant}, Type: w.typ.URL, Version: w.cur.Version, Identifier: identifier("id", w.cur)}
	w.cur.Resources(func(r *xds.Resource) bool {
		b.Resources = append(b.Resources, r)
		return true
	})
	return b.Size() + nonceSize
}
