package fanout

import (
	"testing"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

var variants = []xds.Variant{xds.SotW, xds.Delta}

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
