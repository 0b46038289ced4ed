package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// maxResponse is the limit of a response in bytes.
const maxResponse = 256 << 20

// nonceSize is what a nonce adds to a response, in bytes.
const nonceSize = 24

// ackTimeout of the sessions under test.
const ackTimeout = 15 * time.Second

// sessionFixture is one type of a group, a session on it, and a clock. A test's script acts on
// it.
type sessionFixture struct {
	*sessiontest.Origin

	s      *Session
	seq    uint64
	nonces []uint64 // of the responses so far, oldest first
	subs   []*snapshot.Subscription
	frame  *frame // the last response
	frames *frames
	follow []string // of it (P37)
	linger []string // names that no client wants, and that the group has not forgotten yet (P52)
	again  []string // what the last request asked again (P18)
	later  bool     // a later type has a newer change to send (P19)
	plan   Plan     // of the last response
	size   int      // of it, with a nonce of the longest
	asked  []string // the names of the client's last request
	cut    int      // the size of the parts into which responses are cut (P38); 0: they are not
}

func newSessionFixture(t testing.TB, url xds.TypeURL, v xds.Variant) *sessionFixture {
	o := sessiontest.New(t, url)
	return &sessionFixture{Origin: o, s: newSession(o.Type, v), frames: new(frames)}
}

func newSession(t xds.Type, v xds.Variant) *Session {
	return New(&t, xds.ResourceFormat{Variant: v}, maxResponse)
}

// another is a second client of the group, with the fixture's snapshot and clock as they are
// now.
func (w *sessionFixture) another() *sessionFixture {
	o := *w.Origin
	return &sessionFixture{Origin: &o, s: newSession(w.Type, w.s.form.Variant), frames: w.frames}
}

// origin applies an update, as Say does.
func (w *sessionFixture) origin(wild bool, specs ...string) {
	w.Say(wild, w.s.sub.requested.Names.Add(w.linger...), specs...)
}

// named and wild are the origin's answers to names and to the wildcard.
func (w *sessionFixture) named(specs ...string) { w.T.Helper(); w.origin(false, specs...) }
func (w *sessionFixture) wild(specs ...string)  { w.T.Helper(); w.origin(true, specs...) }

// part is a part of the origin's answer to the wildcard. More of it may follow (P67).
func (w *sessionFixture) part(specs ...string) {
	w.T.Helper()
	w.Partial = true
	w.origin(true, specs...)
	w.Partial = false
}

// request describes a request of the client.
type request struct {
	names, unsub []string
	initial      map[string]string
	ack, nack    int    // of the n-th response, from 1; -1: the newest
	nonce        uint64 // any other
	version      string
}

// intern makes equal subscriptions one, as a group does.
func (w *sessionFixture) intern(s *snapshot.Subscription) *snapshot.Subscription {
	for _, have := range w.subs {
		if have.Equal(s) {
			return have
		}
	}
	w.subs = append(w.subs, s)
	return s
}

// send applies a request of the client.
func (w *sessionFixture) send(r request) Outcome {
	w.T.Helper()
	var req xds.Request
	xdstest.NoError(w.T, req.Scan(w.s.form.Variant, r.wire(w.s.form.Variant), 0, w.s.NameList()))
	seq := r.nonce
	if n := r.ack + r.nack; n < 0 {
		seq = w.nonces[len(w.nonces)-1]
	} else if n > 0 {
		seq = w.nonces[n-1]
	}
	want, _ := w.s.Subscribe(&req)
	out := w.s.Request(&req, w.intern(want), seq)
	w.again, w.asked = w.s.Retry(&req, w.Cur), r.names
	w.Builder.RequestAgain(w.again...)
	w.check()
	return out
}

func (w *sessionFixture) sub(names ...string)   { w.T.Helper(); w.send(request{names: names}) }
func (w *sessionFixture) unsub(names ...string) { w.T.Helper(); w.send(request{unsub: names}) }

// more subscribes to further names.
func (w *sessionFixture) more(names ...string) {
	w.T.Helper()
	if w.s.form.Variant == xds.SotW {
		names = slices.Concat(w.asked, names)
	}
	w.sub(names...)
}

// drop unsubscribes from a name; the others stay.
func (w *sessionFixture) drop(name string, others ...string) {
	w.T.Helper()
	if w.s.form.Variant == xds.SotW {
		w.sub(others...)
	} else {
		w.unsub(name)
	}
}

// ack and nack answer the newest response. A SotW client lists names, or repeats those of its last
// request; in delta that would be a subscription.
func (w *sessionFixture) ack(names ...string) Outcome {
	w.T.Helper()
	switch {
	case w.s.form.Variant == xds.Delta:
		names = nil
	case len(names) == 0:
		names = w.asked
	}
	return w.send(request{names: names, ack: -1})
}

func (w *sessionFixture) nack() Outcome {
	w.T.Helper()
	if w.s.form.Variant == xds.Delta {
		return w.send(request{nack: -1})
	}
	return w.send(request{names: w.asked, nack: -1})
}

// either returns what holds for the variant.
func (w *sessionFixture) either(sotw, delta string) string {
	if w.s.form.Variant == xds.SotW {
		return sotw
	}
	return delta
}

func (w *sessionFixture) moment() Moment {
	return Moment{Now: w.Now, AckTimeout: ackTimeout, Release: w.later}
}

// wire encodes the request for the variant.
func (r request) wire(v xds.Variant) []byte {
	return sessiontest.Request{Names: r.names, Unsubscribe: r.unsub, Initial: r.initial, Version: r.version, Nacked: r.nack != 0}.Wire(v)
}

// frame is a response: its content, and the manifest that sessions keep of it.
type frame struct {
	*Manifest
	resources, beats []*xds.Resource
	removed          []string
	errors           []*xds.ResourceError
	body             []byte
}

// frames are the responses of one snapshot that sessions with equal keys share.
type frames struct {
	of    *snapshot.Snapshot
	byKey map[FrameKey]*frame
}

// made builds the response of a plan, as the relay does: once for equal keys. nil: there is
// nothing to send.
func (w *sessionFixture) made(p *Plan) *frame {
	if w.frames.of != p.To {
		*w.frames = frames{p.To, make(map[FrameKey]*frame)}
	}
	if f, ok := w.frames.byKey[p.Key]; ok && p.Shared() {
		return f
	}
	c := p.Content()
	if c.Empty() {
		return nil
	}
	body := p.Body(&c)
	body.Identifier = "id"
	if size := body.Size() + nonceSize; size > p.Limit {
		p.Oversized = &Oversized{Version: p.To.Version, Bytes: size}
		return nil
	}
	f := &frame{c.Manifest(p.To), c.Changed, c.Heartbeats, c.Removed, c.Errors, body.Encode()}
	if parts := body.Split(cmp.Or(w.cut, maxResponse)); len(parts) > 1 {
		for _, part := range parts {
			c := Content{Changed: part.Resources, Heartbeats: part.Heartbeats, Removed: part.Removed, Errors: part.Errors}
			f.Parts = append(f.Parts, c.Manifest(p.To))
		}
	}
	if p.Shared() {
		w.frames.byKey[p.Key] = f
	}
	return f
}

// respond runs the session as a worker does; nil: it sends nothing.
func (w *sessionFixture) respond() *frame {
	defer w.check()
	fresh := w.s.Copy()
	fresh.clientVersions, fresh.pendingACKs.seen = w.s.clientVersions, snapshot.ID{}
	p := w.s.Next(w.Cur, w.moment())
	if all := fresh.Next(w.Cur, w.moment()); p.do != all.do || len(p.content.Changed) != len(all.content.Changed) || len(p.content.Removed) != len(all.content.Removed) {
		w.T.Fatalf("plans %d %+v since the last plan, and %d %+v of all", p.do, p.content, all.do, all.content)
	}
	w.s.Planned(&p)
	if !p.Sends() {
		return nil
	}
	f := w.made(&p)
	switch {
	case p.Oversized != nil:
		w.s.TooLarge(&p)
		return nil
	case f == nil:
		w.s.NothingToSend(&p)
		return nil
	}
	w.plan, w.size, w.frame = p, len(f.body)+nonceSize, f
	w.s.Sent(&p, f.Manifest, w.seq+1, w.Now)
	for range max(1, len(f.Parts)) {
		w.seq++
		w.nonces = append(w.nonces, w.seq)
	}
	w.follow = slices.Sorted(slices.Values(slices.Concat(f.Follows, p.AlsoFollows)))
	return f
}

// next runs the session as a worker does and returns the response: "a b=2 -c", with "~a" for a
// heartbeat (P62) and "!a" for an error (P39); "(empty)" for one without content, "" for none.
func (w *sessionFixture) next() string {
	w.T.Helper()
	f := w.respond()
	if f == nil {
		return ""
	}
	var out []string
	for _, r := range f.resources {
		out = append(out, w.Describe(r))
	}
	for _, n := range f.removed {
		out = append(out, "-"+n)
	}
	for _, r := range f.beats {
		out = append(out, "~"+r.Name)
	}
	for _, e := range f.errors {
		out = append(out, "!"+e.Name)
	}
	if len(out) == 0 {
		return "(empty)"
	}
	return strings.Join(out, " ")
}

// want fails unless the next response is this.
func (w *sessionFixture) want(response string) {
	w.T.Helper()
	if got := w.next(); got != response {
		w.T.Fatalf("sends %q, want %q", got, response)
	}
}

// accepts and rejects fail unless the next response is this, and answer it.
func (w *sessionFixture) accepts(response string) { w.T.Helper(); w.want(response); w.ack() }
func (w *sessionFixture) rejects(response string) { w.T.Helper(); w.want(response); w.nack() }

// room is the size of a response with so many of the largest resources.
func (w *sessionFixture) room(n int) int { return w.roomFor("a=33", n) }

// roomFor is the size of a response with so many resources of a spec.
func (w *sessionFixture) roomFor(spec string, n int) int {
	b := xds.ResponseBody{ResourceFormat: xds.ResourceFormat{Variant: w.s.form.Variant}, Type: w.Type.URL, Version: strings.Repeat("0", 32), Identifier: "id",
		Resources: slices.Repeat([]*xds.Resource{w.Resource(spec)}, n)}
	return nonceSize + b.Size()
}

// takes makes the client one with these features.
func (w *sessionFixture) takes(features ...string) {
	w.T.Helper()
	raw := (&xds.Node{}).Bytes()
	n := xdstest.Must(new(xds.NodeTable).Intern(xds.WithFeatures(raw, features...)))(w.T)
	w.s.form = n.ResourceFormat(w.s.form.Variant)
}

// timely makes it a client that takes TTLs and heartbeats in its variant.
func (w *sessionFixture) timely() {
	w.T.Helper()
	w.takes(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
}

// joins replaces the client by another one of the group.
func (w *sessionFixture) joins(features ...string) {
	w.s = newSession(w.Type, w.s.form.Variant)
	w.takes(features...)
}

// lapse drops what has expired, as a group does.
func (w *sessionFixture) lapse() {
	w.Builder.Expire(w.Now)
	w.Builder.ResolveAliases(w.s.sub.effective.Names)
	w.Publish()
}

// sent is a resource as it was in the last response.
type sent struct {
	name, version string
	ttl           time.Duration
	body, wrapped bool
}

// wire decodes the last response.
func (w *sessionFixture) wire() (version string, out []sent) {
	w.T.Helper()
	of := func(r *discoveryv3.Resource) sent {
		return sent{r.Name, r.Version, r.Ttl.AsDuration(), r.Resource != nil, true}
	}
	if w.s.form.Variant == xds.Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		xdstest.NoError(w.T, proto.Unmarshal(w.frame.body, m))
		for _, r := range m.Resources {
			out = append(out, of(r))
		}
		return m.SystemVersionInfo, out
	}
	m := new(discoveryv3.DiscoveryResponse)
	xdstest.NoError(w.T, proto.Unmarshal(w.frame.body, m))
	for _, a := range m.Resources {
		r := new(discoveryv3.Resource)
		if a.UnmarshalTo(r) != nil {
			out = append(out, sent{body: true})
			continue
		}
		out = append(out, of(r))
	}
	return m.VersionInfo, out
}

// wantWire fails unless the last response had these.
func (w *sessionFixture) wantWire(want ...sent) {
	w.T.Helper()
	_, got := w.wire()
	if len(got) != len(want) {
		w.T.Fatalf("%+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			w.T.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// eachAnswer runs a test in both variants, for an origin that answers names and for one that
// answers the wildcard.
func eachAnswer(t *testing.T, url xds.TypeURL, f func(w *sessionFixture, wild bool)) {
	for _, v := range variants {
		for _, wild := range []bool{false, true} {
			what := v.String() + "/names"
			if wild {
				what = v.String() + "/wildcard"
			}
			t.Run(what, func(t *testing.T) { f(newSessionFixture(t, url, v), wild) })
		}
	}
}

// ask subscribes to the wildcard, or else to names.
func (w *sessionFixture) ask(wild bool, names ...string) {
	w.T.Helper()
	if wild {
		names = []string{"*"}
	}
	w.sub(names...)
}

// check fails the test if an invariant of the session does not hold. It runs after each step of the
// scripts, the tables and the model.
func (w *sessionFixture) check() {
	w.T.Helper()
	if err := w.s.check(); err != nil {
		w.T.Fatalf("invariant: %v", err)
	}
	if w.Cur == nil || !w.s.RemembersNoNACK() || w.s.clientVersions != nil {
		return
	}
	// What ComparisonCache remembers in a session changes no result. It leaves out removals of what the
	// client already had at first (P27): it would read all names of each such client.
	look := NewComparisonCache()
	if is, want := look.anyPending(w.s, w.Cur), w.s.Pending(w.Cur); is != want {
		w.T.Fatalf("unsent: %v, and %v by a comparison of all", is, want)
	}
}

// check returns the invariants that do not hold between two calls of a session's methods.
func (s *Session) check() error {
	var errs []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	// What the client requests is known, and interned values are never nil. Responses are made for the
	// newest request, unless that is stale (P12), which needs a pending ACK.
	must(s.sub.requested != nil && s.sub.effective != nil, "a subscription is nil")
	must(s.sub.requested == s.sub.effective || s.form.Variant == xds.SotW && s.pendingACKs.any(), "responses are made for another request than the newest, and no ACK is pending")
	must(s.sub.began || s.delivered.snapshot == nil && !s.pendingACKs.any(), "something was sent before the first request")

	// Pending ACKs are in the order of their nonces, and bounded. The parts of a response are
	// consecutive, and the last one ends it.
	whole, last := 0, uint64(0)
	for i, f := range s.pendingACKs.responses {
		must(f.seq > last, "nonce %d follows nonce %d", f.seq, last)
		must(!f.partFollows || i+1 < len(s.pendingACKs.responses) && s.pendingACKs.responses[i+1].snapshot == f.snapshot, "a part of a response is not followed by the next one")
		last = f.seq
		if !f.partFollows {
			whole++
		}
	}
	must(whole <= maxPendingACKs, "%d responses have no ACK", whole)

	// A change waits only for an ACK that is pending (P19).
	must(!s.pendingACKs.changeWaits || s.pendingACKs.any(), "a change waits although no ACK is pending")

	// Empty maps are nil. So inStep is a few comparisons, and a session in step holds no names.
	for name, empty := range map[string]bool{
		"forced.names":            s.forced.names != nil && len(s.forced.names) == 0,
		"forced.retried":          s.forced.retried != nil && len(s.forced.retried) == 0,
		"delivered.sentBeforeACK": s.delivered.sentBeforeACK != nil && len(s.delivered.sentBeforeACK) == 0,
		"delivered.errors":        s.delivered.errors != nil && len(s.delivered.errors) == 0,
		"nacks.list":              s.nacks.list != nil && len(s.nacks.list) == 0,
	} {
		must(!empty, "%s is empty and not nil", name)
	}

	// NACKs are bounded, and their names are sorted and unique, because they are searched by halves.
	must(len(s.nacks.list) <= maxPendingACKs, "%d NACKs are kept", len(s.nacks.list))
	for _, r := range s.nacks.list {
		must(sorted(r.names) && sorted(r.byAlias), "the names of a NACK are not sorted: %q %q", r.names, r.byAlias)
	}
	return errors.Join(errs...)
}

func sorted(names []string) bool {
	for i := range names {
		if i > 0 && names[i-1] >= names[i] {
			return false
		}
	}
	return true
}
