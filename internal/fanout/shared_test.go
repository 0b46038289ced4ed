package fanout

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// opening is the first response of a key of its own.
type opening struct {
	replica, origin, version string
	later                    time.Duration
	url                      xds.TypeURL
	specs                    []string
}

func (a opening) of(t *testing.T, v xds.Variant) (*frameFixture, *Frame) {
	t.Helper()
	w := newFrameFixture(t, a.url, v)
	w.Pass(a.later)
	u := snapshot.Update{Origin: a.origin, Version: a.version, Wildcard: true, Received: w.Now}
	for _, s := range a.specs {
		u.Changed = append(u.Changed, w.Resource(s))
	}
	w.Apply(u)
	w.sub()
	return w, w.answered(a.replica)
}

// Keys with equal resources send the same bytes, which are held once. With another byte, version or
// identifier they send others.
func TestEqualKeysShareBytes(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			first := opening{replica: "id", origin: "o", version: "v1", url: xds.ClusterType, specs: []string{"a=1", "b=2"}}
			but := func(change func(*opening)) opening {
				a := first
				change(&a)
				return a
			}
			one, f := first.of(t, v)
			for name, a := range map[string]struct {
				opening
				same bool
			}{
				"equal":         {first, true},
				"later":         {but(func(a *opening) { a.later = time.Hour }), true},
				"other replica": {but(func(a *opening) { a.replica = "other" }), false},
				"other origin":  {but(func(a *opening) { a.origin = "p" }), false},
				"other version": {but(func(a *opening) { a.version = "v2" }), false},
				"other content": {but(func(a *opening) { a.specs = []string{"a=1", "b=3"} }), false},
				"more":          {but(func(a *opening) { a.specs = []string{"a=1", "b=2", "c=3"} }), false},
				"nothing":       {but(func(a *opening) { a.specs = nil }), false},
			} {
				w, g := a.of(t, v)
				if same := &g.bodies[0][0] == &f.bodies[0][0]; same != a.same {
					t.Errorf("%s: shared: %v", name, same)
				}
				if !g.Received.Equal(w.Cur.Received) {
					t.Errorf("%s: received at %v, not %v", name, g.Received, w.Cur.Received)
				}
			}
			// What holds no resource is known by its type.
			clusters, none := opening{replica: "id", origin: "o", url: xds.ClusterType}.of(t, v)
			listeners, other := opening{replica: "id", origin: "o", url: xds.ListenerType}.of(t, v)
			if &none.bodies[0][0] == &other.bodies[0][0] {
				t.Error("two types share an empty answer")
			}
			runtime.KeepAlive([]any{one, clusters, listeners})
		})
	}
}

// A resource with a TTL is sent with what is left of it. A later client is not given what was left
// for an earlier one.
func TestP62_SharedBytesHaveTheRemainingTTL(t *testing.T) {
	for _, v := range variants {
		w := newFrameFixture(t, xds.EndpointType, v)
		w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
		w.Living(false, ttl, "a")
		w.sub("a")
		first := w.answered("id")
		w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
		w.sub("a")
		if again := w.answered("id"); &again.bodies[0][0] != &first.bodies[0][0] {
			t.Error("at the same time: not shared")
		}
		w.Pass(5 * time.Second)
		w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
		w.sub("a", "b") // another key, of the same content
		if later := w.next(); &later.bodies[0][0] == &first.bodies[0][0] {
			t.Error("later: shared")
		} else if left := later.ttls; !slices.Equal(left, []time.Duration{ttl - 5*time.Second}) {
			t.Errorf("later: %v are left", left)
		}
	}
}

// saying is all that a frame is made of.
type saying struct {
	body xds.ResponseBody
	c    session.Content
	to   snapshot.Snapshot
	ttls []time.Duration
}

// everyPart is a response that has something of everything, of what w holds.
func everyPart(w *frameFixture) *saying {
	a, b := w.Cur.Resource("a"), w.Cur.Resource("b")
	s := &saying{ttls: []time.Duration{ttl, ttl}}
	s.to.Version = "v2"
	s.c = session.Content{Changed: []*xds.Resource{a}, Heartbeats: []*xds.Resource{b}, Removed: []string{"c"},
		Errors: []*xds.ResourceError{w.Cur.Error(w.s.Subscription(), "d")}, Summary: session.Summary{Follows: []string{"a"}, HeartbeatVersion: "v1", LaterErrors: []string{"b"}, Renewed: 1}}
	s.body = xds.ResponseBody{ResourceFormat: xds.ResourceFormat{Variant: xds.Delta, WithTTL: true}, Type: xds.EndpointType, Version: "v1", Identifier: "replica/origin",
		Resources: s.c.Changed, Heartbeats: s.c.Heartbeats, Removed: s.c.Removed, Errors: s.c.Errors, Now: w.Now}
	return s
}

// apart fails unless a frame is none but its own response's, whatever the hash by
// which it is found: what others have is not this one's, as soon as one thing is
// not the same.
func apart(t *testing.T, changes map[string]func(*saying, *frameFixture)) {
	w := newFrameFixture(t, xds.EndpointType, xds.Delta)
	w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
	w.Living(false, ttl, "a", "b", "z")
	w.Fail(false, "d", "e")
	w.sub("a", "b", "d", "e", "z")
	own := everyPart(w)
	f := newFrame(&own.body, []*xds.ResponseBody{&own.body}, &own.c, &own.to, own.ttls)
	if again := everyPart(w); !f.equals(&again.body, &again.c, &again.to, again.ttls) {
		t.Fatal("it is not its own response's")
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			other := everyPart(w)
			change(other, w)
			if f.equals(&other.body, &other.c, &other.to, other.ttls) {
				t.Error("taken for another's")
			}
		})
	}
}

// Keys that have the same resources of different origins, or by different
// replicas, are told so.
func TestP39_SharedBytesBearOneIdentifier(t *testing.T) {
	apart(t, map[string]func(*saying, *frameFixture){
		"origin":  func(s *saying, _ *frameFixture) { s.body.Identifier = "replica/other" },
		"replica": func(s *saying, _ *frameFixture) { s.body.Identifier = "other/origin" },
		"error": func(s *saying, w *frameFixture) {
			s.c.Errors = []*xds.ResourceError{w.Cur.Error(w.s.Subscription(), "e")}
		},
		"owed": func(s *saying, _ *frameFixture) { s.c.LaterErrors = nil },
	})
}

// Frames of different versions are not shared: neither of the version on the wire, nor of that for
// which an ACK counts.
func TestP61_SharedBytesBearOneVersion(t *testing.T) {
	apart(t, map[string]func(*saying, *frameFixture){
		"set":  func(s *saying, _ *frameFixture) { s.to.Version = "v3" },
		"wire": func(s *saying, _ *frameFixture) { s.body.Version = "v2" },
		"form": func(s *saying, _ *frameFixture) { s.body.OriginVersions = true },
	})
}

// Frames with different remaining TTLs, or different counts of renewed TTLs, are not shared.
func TestP62_SharedBytesBearOneTTL(t *testing.T) {
	apart(t, map[string]func(*saying, *frameFixture){
		"left":    func(s *saying, _ *frameFixture) { s.ttls[1]-- },
		"took":    func(s *saying, _ *frameFixture) { s.c.HeartbeatVersion = "v0" },
		"renewed": func(s *saying, _ *frameFixture) { s.c.Renewed++ },
		"quiet":   func(s *saying, _ *frameFixture) { s.c.OnlyRenewals = true },
		"form":    func(s *saying, _ *frameFixture) { s.body.WithTTL = false },
		"beats":   func(s *saying, w *frameFixture) { s.c.Heartbeats = []*xds.Resource{w.Cur.Resource("z")} },
	})
}

// Frames are not shared if one key has something that the other has not.
func TestP51_SharedBytesAreOfOneContent(t *testing.T) {
	apart(t, map[string]func(*saying, *frameFixture){
		"type":    func(s *saying, _ *frameFixture) { s.body.Type = xds.ClusterType },
		"variant": func(s *saying, _ *frameFixture) { s.body.Variant = xds.SotW },
		"changed": func(s *saying, w *frameFixture) { s.c.Changed = []*xds.Resource{w.Cur.Resource("z")} },
		"more":    func(s *saying, w *frameFixture) { s.c.Changed = append(s.c.Changed, w.Cur.Resource("z")) },
		"removed": func(s *saying, _ *frameFixture) { s.c.Removed = []string{"z"} },
		"follows": func(s *saying, _ *frameFixture) { s.c.Follows = []string{"z"} },
	})
}

// What keys share goes with the last of them, whichever made it.
func TestSharedBytesGoWithTheLast(t *testing.T) {
	mine := func(later time.Duration) opening {
		return opening{replica: "id", origin: "o", url: xds.ClusterType, specs: []string{"mine", "yours"}, later: later}
	}
	one, f := mine(0).of(t, xds.SotW)
	two, _ := mine(time.Hour).of(t, xds.SotW)
	body := weak.Make(&f.bodies[0][0])
	f = nil
	one.Cur.Release()
	runtime.GC()
	runtime.GC()
	three, again := mine(2*time.Hour).of(t, xds.SotW)
	if body.Value() != &again.bodies[0][0] {
		t.Error("a third key does not find what the second has of the first")
	}
	again = nil // nobody has it but the keys
	two.Cur.Release()
	three.Cur.Release()
	for end := time.Now().Add(20 * time.Second); body.Value() != nil; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no key has it, and it is there")
		}
		runtime.GC()
	}
	runtime.KeepAlive([]any{one, two, three})
}
