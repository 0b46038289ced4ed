package orchestrator

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// bring hands over an update of resources.
func (f *feed) bring(t testing.TB, typ xds.TypeURL, wildcard bool, rs ...*xds.Resource) {
	t.Helper()
	f.hand(t, snapshot.Update{Type: typ, Origin: "origin", Wildcard: wildcard, Received: time.Now(), Changed: rs})
}

// living returns a resource with a TTL that starts now.
func living(t testing.TB, typ xds.TypeURL, name, value string, ttl time.Duration) *xds.Resource {
	return resource(t, typ, name, value).RenewTTL(ttl, time.Now())
}

// uncached returns a do_not_cache resource.
func uncached(t testing.TB, typ xds.TypeURL, name, value string) *xds.Resource {
	t.Helper()
	return cut(t, typ, &discoveryv3.Resource{
		Name: name, Resource: anyOf(t, resource(t, typ, name, value)), CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: true},
	}).Take(xds.TypeOf(typ), nil)
}

func anyOf(t testing.TB, r *xds.Resource) *anypb.Any {
	t.Helper()
	a := new(anypb.Any)
	if err := proto.Unmarshal(r.Any(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// counted fails the test unless the metrics have this line.
func (w *registryFixture) counted(line string) {
	w.t.Helper()
	out := httptest.NewRecorder()
	w.reg.opts.Metrics.Handler().ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(out.Body.String(), line+"\n") {
		w.t.Errorf("the metrics lack %s", line)
	}
}

// A resource expires on time, however long changes wait. content.TestUrgent has more.
func TestP62_ExpiryOfHeldResources(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Hour }, func(w *registryFixture) {
		c := w.join("edge", cds).want("a")
		synctest.Wait()
		w.feed("edge").bring(t, cds, false, living(t, cds, "a", "1", 10*time.Second))
		pass(10*time.Second - 1)
		equal(t, "a before it expires", c.sees(subscription("a"), "a"), "1")
		pass(1)
		equal(t, "a", c.sees(subscription("a"), "a"), "?")
		w.counted(`xdsrelay_dropped_resources_total{reason="expired",type="CDS"} 1`)
	})
}

// A heartbeat wakes the clients that have the name, and changes nothing for any client.
func TestP62_HeartbeatWakesClientsWithTheName(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b, both := w.join("edge", eds).want("a"), w.join("edge", eds).want("b"), w.join("edge", eds).want("a", "b")
		every := w.join("edge", cds).want("*")
		f := w.feed("edge")
		woken := func() string { return fmt.Sprint(a.woken(), b.woken(), both.woken(), every.woken()) }
		f.bring(t, eds, false, living(t, eds, "a", "1", time.Minute), living(t, eds, "b", "1", time.Minute))
		f.bring(t, cds, true, living(t, cds, "a", "1", time.Minute))
		woken()
		before := a.State().Snapshot(eds)
		time.Sleep(time.Second)
		f.bring(t, eds, false, before.Resource("a").StartTTL(time.Now()))
		equal(t, "by a name's", woken(), "1 0 1 0")
		f.bring(t, eds, false, before.Resource("a").StartTTL(time.Now()), before.Resource("b").StartTTL(time.Now()))
		equal(t, "by both names'", woken(), "1 1 1 0")
		f.bring(t, cds, true, f.sink.Newest(cds).Resource("a").StartTTL(time.Now()))
		equal(t, "by the wildcard's", woken(), "0 0 0 1")
		equal(t, "changes", len(a.State().Snapshot(eds).Changes(before, audience.Everything)), 0)
	})
}

// A do_not_cache resource is forgotten with the last client that wants it, and so is its name.
// Other resources linger. If the name is wanted again, the stream requests it again.
func TestP63_UncacheableDoesNotLinger(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		stays := w.join("edge", eds).want("x")
		c := w.join("edge", eds).want("a", "b")
		synctest.Wait()
		f := w.feed("edge")
		f.bring(t, eds, false, uncached(t, eds, "a", "1"), resource(t, eds, "b", "1"), resource(t, eds, "x", "1"))
		if got := c.sees(subscription("a"), "a"); got != "1" {
			t.Errorf("while it is requested: %s", got)
		}
		c.want("x")
		synctest.Wait()
		if got := f.requested(eds); got != "b x" {
			t.Errorf("the stream requests %q", got)
		}
		if f.sink.Newest(eds).Resource("a") != nil || f.sink.Newest(eds).Resource("b") == nil {
			t.Error("the wrong one is held")
		}
		w.counted(`xdsrelay_dropped_resources_total{reason="unwanted",type="EDS"} 1`)
		if got := stays.sees(subscription("x"), "x"); got != "1" {
			t.Errorf("the other: %s", got)
		}
		c.want("a")
		synctest.Wait()
		if got := f.requested(eds); got != "a b x" {
			t.Errorf("requested again: %q", got)
		}
		// Without subscribers everything stays subscribed, except this.
		f.bring(t, eds, false, uncached(t, eds, "a", "1"))
		c.leave()
		stays.leave()
		if got := f.requested(eds); got != "b x" {
			t.Errorf("a key without clients requests %q", got)
		}
		if f.sink.Newest(eds).Resource("a") != nil {
			t.Error("it is held without a client")
		}
	})
}

// A wildcard that brought such a resource is unsubscribed at once. The next client subscribes to it
// anew.
func TestP63_UnderAWildcard(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("edge", cds).want("*")
		synctest.Wait()
		f := w.feed("edge")
		f.bring(t, cds, true, uncached(t, cds, "a", "1"), resource(t, cds, "b", "1"))
		c.leave()
		equal(t, "requested", f.requested(cds), "")
		d := w.join("edge", cds).want("*")
		equal(t, "a", d.sees(audience.Everything, "a"), "?")
		equal(t, "requested", f.requested(cds), "*")
		f.bring(t, cds, true, uncached(t, cds, "a", "2"))
		equal(t, "a", d.sees(audience.Everything, "a"), "2")
	})
}

func failed(t testing.TB, name string, code codes.Code) *xds.ResourceError {
	t.Helper()
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(eds), ResourceErrors: []*discoveryv3.ResourceError{{
		ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(code)}}}}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := xds.ParseResponse(xds.Delta, b)
	if err != nil {
		t.Fatal(err)
	}
	return r.Errors[0]
}

// The error of a name reaches the clients that subscribe to it. It is published at once if they
// wait for a first answer. It counts as held.
func TestP39_ErrorsReachSubscribersOfTheName(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Hour }, func(w *registryFixture) {
		a := w.join("edge", eds).want("a")
		b := w.join("edge", eds).want("b")
		synctest.Wait()
		a.woken()
		b.woken()
		f := w.feed("edge")
		f.hand(t, snapshot.Update{Type: eds, Origin: "origin", Errors: []*xds.ResourceError{failed(t, "a", codes.Internal), failed(t, "not requested", codes.Internal)}})
		if x, y := a.woken(), b.woken(); x != 1 || y != 0 {
			t.Errorf("woken %d and %d times", x, y)
		}
		snap := a.State().Snapshot(eds)
		if e := snap.Error(subscription("a"), "a"); e == nil || snap.ErrorCount() != 1 {
			t.Errorf("%v, %d kept", e, snap.ErrorCount())
		}
		if !a.of().group.content.Holds() {
			t.Error("an error does not count as held")
		}
		w.counted(`xdsrelay_upstream_resource_errors_total{result="kept",type="EDS"} 1`)
		// The name is no longer wanted: the error is removed with it.
		a.leave()
		time.Sleep(2 * time.Hour) // it lingers, but its removal is settled later
		if n := b.State().Snapshot(eds).ErrorCount(); n != 0 {
			t.Errorf("%d kept", n)
		}
	})
}
