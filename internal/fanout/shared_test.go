package fanout

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"xdsrelay/internal/xds"
)

// opening is the first response of a key of its own.
type opening struct {
	replica, origin, version string
	later                    time.Duration
	url                      xds.TypeURL
	specs                    []string
}

func (a opening) of(t *testing.T, v xds.Variant) (*sessionFixture, *Frame) {
	t.Helper()
	w := newSessionFixture(t, a.url, v)
	w.now = w.now.Add(a.later)
	u := xds.Update{Origin: a.origin, Version: a.version, Wildcard: true, Received: w.now}
	for _, s := range a.specs {
		u.Changed = append(u.Changed, w.resource(s))
	}
	w.apply(u)
	w.sub()
	return w, w.answered(a.replica)
}

// answered is what the session is sent by this replica.
func (w *sessionFixture) answered(replica string) *Frame {
	p := w.s.Next(w.cur, w.moment())
	return framesOf(w.cur).frame(nil, &p, replica)
}

// Keys of equal resources send the same bytes, held once; a byte that differs, a
// version or who says it, and they are others.
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
				if same := &g.body[0] == &f.body[0]; same != a.same {
					t.Errorf("%s: shared: %v", name, same)
				}
				if !g.received.Equal(w.cur.Received) {
					t.Errorf("%s: received at %v, not %v", name, g.received, w.cur.Received)
				}
			}
			// What holds no resource is known by its type.
			clusters, none := opening{replica: "id", origin: "o", url: xds.ClusterType}.of(t, v)
			listeners, other := opening{replica: "id", origin: "o", url: xds.ListenerType}.of(t, v)
			if &none.body[0] == &other.body[0] {
				t.Error("two types share an empty answer")
			}
			runtime.KeepAlive([]any{one, clusters, listeners})
		})
	}
}

// A resource with a TTL is sent with what is left of it: who comes later is not
// given what was left for who came first.
func TestP62_SharedBytesHaveWhatIsLeft(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.living(false, ttl, "a")
		w.sub("a")
		first := w.answered("id")
		w.joins(xds.FeatureTTL, xds.FeatureSotWResource)
		w.sub("a")
		if again := w.answered("id"); &again.body[0] != &first.body[0] {
			t.Error("at the same time: not shared")
		}
		w.pass(5 * time.Second)
		w.joins(xds.FeatureTTL, xds.FeatureSotWResource)
		w.sub("a", "b") // another key, of the same content
		w.want("a")
		w.wantWire(sent{"a", w.frameVersion(), ttl - 5*time.Second, true, true})
		if &w.frame.body[0] == &first.body[0] {
			t.Error("later: shared")
		}
	})
}

// frameVersion is that of the resource in the last response.
func (w *sessionFixture) frameVersion() string {
	if w.s.variant == xds.SotW {
		return w.cur.Version
	}
	return w.cur.Held("a").Version.String()
}

// saying is all that a frame is made of.
type saying struct {
	body  xds.Body
	c     content
	to    xds.Snapshot
	lefts []time.Duration
}

// everyPart is a response that has something of everything, of what w holds.
func everyPart(w *sessionFixture) *saying {
	a, b := w.cur.Held("a"), w.cur.Held("b")
	s := &saying{lefts: []time.Duration{ttl, ttl}}
	s.to.Version = "v2"
	s.c = content{changed: []*xds.Resource{a}, beats: []*xds.Resource{b}, removed: []string{"c"},
		errors: []*xds.ResourceError{w.cur.Error(w.s.sub, "d")}, follows: []string{"a"}, took: "v1", later: []string{"b"}, renewed: 1}
	s.body = xds.Body{Form: xds.Form{Variant: xds.Delta, Timed: true}, Type: xds.EndpointType, Version: "v1", Identifier: "replica/origin",
		Resources: s.c.changed, Beats: s.c.beats, Removed: s.c.removed, Errors: s.c.errors, Now: w.now}
	return s
}

// apart fails unless a frame is none but its own response's, whatever the hash by
// which it is found: what others have is not this one's, as soon as one thing is
// not the same.
func apart(t *testing.T, changes map[string]func(*saying, *sessionFixture)) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.timely()
	w.living(false, ttl, "a", "b", "z")
	w.fail(false, "d", "e")
	w.sub("a", "b", "d", "e", "z")
	own := everyPart(w)
	f := newFrame(&own.body, &own.c, &own.to, own.lefts)
	if again := everyPart(w); !f.speaks(&again.body, &again.c, &again.to, again.lefts) {
		t.Fatal("it is not its own response's")
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			other := everyPart(w)
			change(other, w)
			if f.speaks(&other.body, &other.c, &other.to, other.lefts) {
				t.Error("taken for another's")
			}
		})
	}
}

// Keys that have the same resources of different origins, or by different
// replicas, are told so.
func TestP39_SharedBytesBearOneIdentifier(t *testing.T) {
	apart(t, map[string]func(*saying, *sessionFixture){
		"origin":  func(s *saying, _ *sessionFixture) { s.body.Identifier = "replica/other" },
		"replica": func(s *saying, _ *sessionFixture) { s.body.Identifier = "other/origin" },
		"error":   func(s *saying, w *sessionFixture) { s.c.errors = []*xds.ResourceError{w.cur.Error(w.s.sub, "e")} },
		"owed":    func(s *saying, _ *sessionFixture) { s.c.later = nil },
	})
}

// Nor are versions shared: not that on the wire, nor that for which an ACK counts.
func TestP61_SharedBytesBearOneVersion(t *testing.T) {
	apart(t, map[string]func(*saying, *sessionFixture){
		"set":  func(s *saying, _ *sessionFixture) { s.to.Version = "v3" },
		"wire": func(s *saying, _ *sessionFixture) { s.body.Version = "v2" },
		"form": func(s *saying, _ *sessionFixture) { s.body.OriginVersions = true },
	})
}

// Nor is what is left of a TTL, or counted of it.
func TestP62_SharedBytesBearOneTTL(t *testing.T) {
	apart(t, map[string]func(*saying, *sessionFixture){
		"left":    func(s *saying, _ *sessionFixture) { s.lefts[1]-- },
		"took":    func(s *saying, _ *sessionFixture) { s.c.took = "v0" },
		"renewed": func(s *saying, _ *sessionFixture) { s.c.renewed++ },
		"quiet":   func(s *saying, _ *sessionFixture) { s.c.quiet = true },
		"form":    func(s *saying, _ *sessionFixture) { s.body.Timed = false },
		"beats":   func(s *saying, w *sessionFixture) { s.c.beats = []*xds.Resource{w.cur.Held("z")} },
	})
}

// Nor is anything that one key has and the other has not.
func TestP51_SharedBytesAreOfOneContent(t *testing.T) {
	apart(t, map[string]func(*saying, *sessionFixture){
		"type":    func(s *saying, _ *sessionFixture) { s.body.Type = xds.ClusterType },
		"variant": func(s *saying, _ *sessionFixture) { s.body.Variant = xds.SotW },
		"changed": func(s *saying, w *sessionFixture) { s.c.changed = []*xds.Resource{w.cur.Held("z")} },
		"more":    func(s *saying, w *sessionFixture) { s.c.changed = append(s.c.changed, w.cur.Held("z")) },
		"removed": func(s *saying, _ *sessionFixture) { s.c.removed = []string{"z"} },
		"follows": func(s *saying, _ *sessionFixture) { s.c.follows = []string{"z"} },
	})
}

// What keys share goes with the last of them, whoever made it.
func TestSharedBytesGoWithTheLast(t *testing.T) {
	mine := func(later time.Duration) opening {
		return opening{replica: "id", origin: "o", url: xds.ClusterType, specs: []string{"mine", "yours"}, later: later}
	}
	one, f := mine(0).of(t, xds.SotW)
	two, _ := mine(time.Hour).of(t, xds.SotW)
	body := weak.Make(&f.body[0])
	f = nil
	one.cur.Release()
	runtime.GC()
	runtime.GC()
	three, again := mine(2*time.Hour).of(t, xds.SotW)
	if body.Value() != &again.body[0] {
		t.Error("a third key does not find what the second has of the first")
	}
	again = nil // nobody has it but the keys
	two.cur.Release()
	three.cur.Release()
	for end := time.Now().Add(20 * time.Second); body.Value() != nil; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no key has it, and it is there")
		}
		runtime.GC()
	}
	runtime.KeepAlive([]any{one, two, three})
}
