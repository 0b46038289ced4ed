package fanout

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"google.golang.org/grpc/encoding"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
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

var variants = []xds.Variant{xds.SotW, xds.Delta}

func eachVariant(t *testing.T, f func(*testing.T, xds.Variant)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { f(t, v) })
	}
}

// ackTimeout of the sessions under test, and the TTL of resources.
const (
	ackTimeout = 15 * time.Second
	ttl        = 30 * time.Second
)

// frameFixture is one type of a group and a session on it, which is sent frames.
type frameFixture struct {
	*sessiontest.Origin
	variant xds.Variant
	s       *session.Session
	subs    []*snapshot.Subscription
	seq     uint64
}

func newFrameFixture(t testing.TB, url xds.TypeURL, v xds.Variant) *frameFixture {
	w := &frameFixture{Origin: sessiontest.New(t, url), variant: v}
	w.joins()
	return w
}

// joins is another client of the group, with these features, in place of the one before.
func (w *frameFixture) joins(features ...string) {
	w.T.Helper()
	n := xdstest.Must(new(xds.NodeTable).Intern(xds.WithFeatures((&xds.Node{}).Bytes(), features...)))(w.T)
	w.s = session.New(&w.Type, n.ResourceFormat(w.variant), maxResponse)
}

// named is the origin's answer to names, and wild that to the wildcard.
func (w *frameFixture) named(specs ...string) { w.Say(false, w.s.Requested().Names, specs...) }
func (w *frameFixture) wild(specs ...string)  { w.Say(true, w.s.Requested().Names, specs...) }

// ask applies a request with the nonce of response seq.
func (w *frameFixture) ask(seq uint64, names ...string) {
	w.T.Helper()
	var r xds.Request
	xdstest.NoError(w.T, r.Scan(w.variant, sessiontest.Request{Names: names}.Wire(w.variant), 0))
	want, _ := w.s.Subscribe(&r)
	w.s.Request(&r, w.intern(want), seq)
}

// intern is what a group does: equal subscriptions are one.
func (w *frameFixture) intern(s *snapshot.Subscription) *snapshot.Subscription {
	for _, have := range w.subs {
		if have.Equal(s) {
			return have
		}
	}
	w.subs = append(w.subs, s)
	return s
}

func (w *frameFixture) sub(names ...string) { w.T.Helper(); w.ask(0, names...) }

// ack answers the newest response; a delta client names nothing.
func (w *frameFixture) ack() { w.T.Helper(); w.ask(w.seq) }

func (w *frameFixture) plan() session.Plan {
	p := w.s.Next(w.Cur, session.Moment{Now: w.Now, AckTimeout: ackTimeout})
	w.s.Planned(&p)
	return p
}

// answered is what the session is to be sent by this replica.
func (w *frameFixture) answered(replica string) *Frame {
	p := w.plan()
	return framesOf(w.Cur).frame(nil, &p, replica)
}

// next runs the session as a worker does and returns the frame; nil if nothing is sent.
func (w *frameFixture) next() *Frame {
	p := w.plan()
	if !p.Sends() {
		return nil
	}
	f := framesOf(p.To).frame(nil, &p, "id")
	if f.Empty() {
		w.s.NothingToSend(&p)
		return nil
	}
	w.seq++
	w.s.Sent(&p, f.Manifest, w.seq, w.Now)
	return f
}

// The frames of a snapshot take a bounded number of bytes, however many
// different ones a client has made.
func TestP16_FrameCacheIsBoundedInBytes(t *testing.T) {
	w := newFrameFixture(t, "type.googleapis.com/acme.Thing", xds.Delta)
	var specs, names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("r%04d", i))
		specs = append(specs, names[i]+"="+strings.Repeat("x", 1000))
	}
	w.named(specs...)
	for i := range 200 {
		w.sub(names[i%100:]...) // P23: subscribed again
		if w.next() == nil {
			t.Fatal("not answered")
		}
		w.ack()
	}
	c := framesOf(w.Cur)
	limit := 2*w.Cur.Bytes + frameBytes
	for name, l := range map[string]struct {
		bytes int64
		cells []*cell
	}{"by key": {c.byKey.bytes, c.byKey.all()}, "by content": {c.byContent.bytes, c.byContent.all()}} {
		sum := int64(0)
		for _, cell := range l.cells {
			sum += int64(cell.frame.size())
		}
		if sum != l.bytes || sum > limit {
			t.Errorf("%s: %d bytes, counted as %d, limit %d", name, sum, l.bytes, limit)
		}
	}
	if c.byContent.bytes == 0 {
		t.Error("nothing is cached")
	}
	w.Cur.Release()
	if framesOf(w.Cur).byContent.bytes != 0 {
		t.Error("Release keeps the frames")
	}
}

// all are the cells of a layer.
func (l *layer[K]) all() []*cell {
	switch {
	case l.cells != nil:
		return l.cells.Values()
	case l.alone != nil:
		return []*cell{l.alone}
	}
	return nil
}

// A layer of one cell counts as one of many does, and hands it over.
func TestP16_FrameCacheOfOne(t *testing.T) {
	l := layer[int]{max: 100}
	made := func(k, bytes int) *cell {
		c := new(cell)
		l.put(k, c)
		l.finish(k, c, built{frame: &Frame{bodies: [][]byte{make([]byte, bytes)}}})
		return c
	}
	if l.get(1) != nil {
		t.Error("there is one before any was made")
	}
	first := made(1, 200)
	if l.get(1) != first || l.get(2) != nil || l.bytes != 200 || l.cells != nil {
		t.Errorf("with the first: %d bytes", l.bytes)
	}
	again := made(1, 60) // another of the same hash
	if l.get(1) != again || l.bytes != 60 {
		t.Errorf("with another in its place: %d bytes", l.bytes)
	}
	second := made(2, 30)
	if l.get(1) != again || l.get(2) != second || l.bytes != 90 {
		t.Errorf("with a second: %d bytes", l.bytes)
	}
	third := made(3, 70) // over the limit without the oldest
	if l.get(1) != nil || l.get(2) != second || l.get(3) != third || l.bytes != 100 {
		t.Errorf("with a third: %d bytes", l.bytes)
	}
}

// With a compressor linked in, a client's grpc-accept-encoding would have each
// response compressed for itself, and its tail freed before it has left.
func TestNoCompressor(t *testing.T) {
	if encoding.GetCompressor("gzip") != nil {
		t.Fatal("something imports grpc's gzip: the codec's buffers are not sent as they are any more")
	}
}

// A frame for a client that alone has its subscription takes no place among those
// that others may ask for; it is the same, and its bytes are shared.
func TestFrameOfASoleSubscription(t *testing.T) {
	var bodies [2][]byte
	var cached, built [2]int
	for i, sole := range []bool{false, true} {
		w := newFrameFixture(t, "type.googleapis.com/acme.Thing", xds.Delta)
		w.named("a", "b")
		w.sub("a")
		w.s.Subscription().Unshared.Store(sole)
		f := w.next()
		if f == nil {
			t.Fatal("not answered")
		}
		c := framesOf(w.Cur)
		bodies[i], cached[i], built[i] = f.bodies[0], len(c.byKey.all()), len(c.byContent.all())
	}
	if string(bodies[0]) != string(bodies[1]) {
		t.Errorf("%q and %q", bodies[0], bodies[1])
	}
	if cached != [2]int{1, 0} || built != [2]int{1, 1} {
		t.Errorf("by key %d, by content %d", cached, built)
	}
}
