package fanout

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// smallServer is a serverFixture whose responses have room for so many endpoints.
func smallServer(t *testing.T, room int, ackTimeout time.Duration) (*serverFixture, *xdstest.Log) {
	log := new(xdstest.Log)
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	b := xds.Body{Form: xds.Form{Variant: xds.Delta}, Type: xds.EndpointType, Version: strings.Repeat("0", 32), Identifier: "replica/origin",
		Resources: slices.Repeat([]*xds.Resource{w.resource("a=2")}, room)}
	return newServerFixture(t, func(o *Options) {
		o.AckTimeout = ackTimeout
		o.MaxResponse = nonceSize + b.Size()
		o.Log = log.Logger()
	}), log
}

func (r *serverFixture) wantMetric(line string) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.meters.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), line+"\n") {
		r.t.Fatalf("the metrics do not say %s", line)
	}
}

func TestP38_NotSentIsReported(t *testing.T) {
	r, log := smallServer(t, 3, time.Minute)
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
	if n := log.Count("too large"); n != 1 {
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

// A response that is too large is not sent, whatever asks for it. The client keeps
// what it has, and other types and later responses go on.
func TestP38_TooLarge(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.EndpointType, v)
		w.s.limit = w.room(1)
		w.named("a", "b")
		w.sub("a")
		w.want("a")
		if v == xds.Delta { // an answer that does not wait for the ACK
			w.named("c", "d")
			w.sub("c", "d")
			w.want("")
			if w.s.unsent() == nil {
				t.Errorf("%v: not reported", v)
			}
			w.unsub("c", "d")
		}
		w.ack("a")
		w.want("")
		w.sub("a", "b")
		w.named("a=2", "b=2")
		w.want("")
		if o := w.s.unsent(); o == nil || o.Version != w.cur.Version || o.Bytes <= w.s.limit {
			t.Errorf("%v: reported %+v", v, o)
		}
		w.want("") // nor is it made again
		w.s.limit = MaxResponse
		w.named("a=33")
		w.want("a=33 b=2")
		if w.s.unsent() != nil {
			t.Errorf("%v: still reported", v)
		}
	}
}

// P59: responses of up to 256 MiB, to the byte.
func TestP59_TheBound(t *testing.T) {
	if MaxResponse != 256<<20 {
		t.Fatalf("responses of up to %d bytes", MaxResponse)
	}
	for extra, responses := range map[int]int{0: 1, 1: 1, -1: 0} {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
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
		if n != responses {
			t.Errorf("%d bytes to spare: %d responses", extra, n)
		}
	}
}

// sizeOf is the size of everything in one response.
func sizeOf(w *sessionFixture) int {
	b := xds.Body{Form: xds.Form{Variant: w.s.variant}, Type: w.typ.URL, Version: w.cur.Version, Identifier: identifier("id", w.cur)}
	w.cur.Resources(func(r *xds.Resource) bool {
		b.Resources = append(b.Resources, r)
		return true
	})
	return b.Size() + nonceSize
}
