package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"xdsrelay/internal/xds"
)

// Until when a request may take.
func TestP54_Unread(t *testing.T) {
	const after = 15 * time.Second
	now := time.Unix(1000, 0)
	for what, c := range map[string]struct {
		s           sending
		absentAfter time.Duration
		want        time.Duration // from now
	}{
		"a small one":              {s: sending{size: 100}, absentAfter: after, want: time.Minute},
		"a large one":              {s: sending{size: 3*unreadPer + 1}, absentAfter: after, want: 7 * after},
		"the relay was stopped":    {s: sending{size: 100, listens: now.Add(2 * time.Minute)}, absentAfter: after, want: 2 * time.Minute},
		"names have just a second": {s: sending{size: 100}, absentAfter: time.Second, want: time.Minute},
	} {
		c.s.since = now
		if got := c.s.unread(c.absentAfter); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: %v", what, got.Sub(now))
		}
	}
}

// A large request is told of when nothing needs it any more, whichever part is large.
func TestALargeRequestLeaves(t *testing.T) {
	part := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for _, c := range [][2]int{{largeRequest, 0}, {largeRequest, 10}, {10, largeRequest}, {largeRequest, largeRequest}, {largeRequest - 10, 10}} {
		r := &request{head: part(c[0]), tail: part(c[1]), left: make(chan struct{})}
		out := r.buffers()
		if got := out.Materialize(); !bytes.Equal(got, append(part(c[0]), part(c[1])...)) {
			t.Errorf("%v: %d bytes", c, len(got))
		}
		select {
		case <-r.left:
			t.Errorf("%v: it has left before", c)
		default:
		}
		out.Free()
		select {
		case <-r.left:
		default:
			t.Errorf("%v: it has not left", c)
		}
	}
}

// slowConn writes 100 KB a second.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / 100_000)
	return c.Conn.Write(b)
}

// long are 2000 names, of 2 MB.
func long() []string {
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprint(i, strings.Repeat("x", 1000))
	}
	return names
}

// What is asked by a large request is not silence while that is on a slow way to the origin.
func TestP57_ARequestThatIsOnItsWay(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		dial := func(ctx context.Context, name string) (net.Conn, error) {
			c, err := n.dial(ctx, name)
			return slowConn{c}, err
		}
		r := startRelay(t, Options{Variant: v, Dialer: dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, addressOf("one"))
		stream, sink := r.stream(named(rds, "a"))
		s := f.opens()
		s.request()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		time.Sleep(time.Minute)
		synctest.Wait()
		for len(s.in) > 0 {
			s.request()
		}
		names := long()
		began := time.Now()
		stream.SetInterest(sink.want(named(rds, "a"), named(eds, names...)))
		for len(s.in) == 0 {
			if time.Since(began) > time.Minute {
				t.Fatal("never read")
			}
			time.Sleep(100 * time.Millisecond)
			if is := sink.is(eds, names[0]); is != xds.Pending {
				t.Fatalf("after %v it is %d", time.Since(began), is)
			}
		}
		if d := time.Since(began); d < 16*time.Second {
			t.Fatalf("read after %v: too soon for this test", d)
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if is := sink.is(eds, names[0]); is != xds.Absent {
			t.Errorf("in the end it is %d", is)
		}
	})
}

// readsSome is a stream of which an origin reads so many requests.
type readsSome struct {
	grpc.ServerStream
	left *atomic.Int64
}

func (r readsSome) RecvMsg(m any) error {
	if r.left.Add(-1) < 0 {
		<-r.Context().Done()
		return r.Context().Err()
	}
	return r.ServerStream.RecvMsg(m)
}

// reading is an origin that reads so many requests, of all streams.
func reading(n *inMemory, some *atomic.Int64) *fakeOrigin {
	return n.origin("one", grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if strings.Contains(i.FullMethod, "Health") {
			return h(srv, ss)
		}
		return h(srv, readsSome{ss, some})
	}))
}

// A large request that nobody reads is given up, though no other follows it.
func TestP54_ALargeRequestThatNobodyReads(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		some := new(atomic.Int64)
		some.Store(2)
		f := reading(n, some)
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a"))
		s := f.opens()
		s.request()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		s.request() // ACK
		names := long()
		stream.SetInterest(sink.want(named(rds, "a"), named(eds, names...)))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects > 0 || sink.is(eds, names[0]) != xds.Pending {
			t.Errorf("it is %d: %+v", sink.is(eds, names[0]), at)
		}
		some.Store(1000)
		time.Sleep(time.Minute)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects != 1 || sink.is(eds, names[0]) != xds.Pending {
			t.Errorf("it is %d: %+v", sink.is(eds, names[0]), at)
		}
	})
}

// An origin answers the first request, and reads no more of what was on its way when the
// answer came.
func TestP54_AnOriginThatReadsNoMoreFromTheStart(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		some := new(atomic.Int64)
		some.Store(1)
		f := reading(n, some)
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a"), named(eds, long()...), named(lds, "z"))
		s := f.opens()
		s.request()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		some.Store(1000) // of the next stream
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects != 1 {
			t.Errorf("%+v", at)
		}
	})
}

// A large first request holds up none of the others until it is answered.
func TestP54_ALargeFirstRequestHoldsUpNothing(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		large := long()[:100] // gRPC would keep as much, to send it again
		n.relay(v, "one").stream(named(eds, large...), named(rds, large...), named(lds, large...))
		s := f.opens()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.in) != 3 {
			t.Errorf("%d requests have come", len(s.in))
		}
	})
}

// readsLater is a stream of which an origin reads so many requests at once, and the
// others once it goes on.
type readsLater struct {
	grpc.ServerStream
	left *atomic.Int64
	goOn chan struct{}
}

func (r readsLater) RecvMsg(m any) error {
	if r.left.Add(-1) < 0 {
		select {
		case <-r.goOn:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	return r.ServerStream.RecvMsg(m)
}

// An origin that takes its time to say the first word has as long as any other to read
// what was on its way by then.
func TestP54_AnOriginThatWakesUp(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		some, goOn := new(atomic.Int64), make(chan struct{})
		some.Store(1)
		f := n.origin("one", grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if strings.Contains(i.FullMethod, "Health") {
				return h(srv, ss)
			}
			return h(srv, readsLater{ss, some, goOn})
		}))
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a"), named(eds, long()...))
		s := f.opens()
		s.request()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		time.Sleep(10 * time.Second)
		close(goOn)
		time.Sleep(time.Second)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects != 0 {
			t.Errorf("it was not given the time to read: %+v", at)
		}
	})
}

// Also where that was a quarter of an hour, and its next answer is a minute and a half on its way.
func TestP54_AnOriginThatWakesUpAndAnswersBeforeItReads(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		some, goOn := new(atomic.Int64), make(chan struct{})
		some.Store(1)
		f := n.origin("one", grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if strings.Contains(i.FullMethod, "Health") {
				return h(srv, ss)
			}
			return h(srv, readsLater{ss, some, goOn})
		}))
		dial := func(ctx context.Context, name string) (net.Conn, error) {
			c, err := n.dial(ctx, name)
			return narrow{c}, err
		}
		r := startRelay(t, Options{Variant: v, Dialer: dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, addressOf("one"))
		_, sink := r.stream(named(cds, "b", "c"), named(eds, long()[:250]...))
		s := f.opens()
		s.request()
		time.Sleep(15 * time.Minute)
		s.send(resp{typ: cds, res: clusters("b")})
		r.wg.Go(func() {
			_ = s.SendMsg(resp{typ: cds, res: []res{{name: "b"}, {name: "c", content: strings.Repeat("x", 9_000_000)}}}.encode(t, v, "2"))
			_ = s.SendMsg(resp{typ: cds, res: clusters("b")}.encode(t, v, "3")) // once that has gone
			close(goOn)
		})
		for began := time.Now(); sink.is(cds, "c") != xds.Present && time.Since(began) < 3*time.Minute; {
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects != 0 {
			t.Errorf("%+v", at)
		}
	})
}

// Who answers reads no request meanwhile; but not for ever.
func TestP54_WhatComesGoesOn(t *testing.T) {
	now := time.Unix(1000, 0)
	s := sending{since: now}
	for i, c := range []struct {
		in   time.Duration
		came int64
		want bool
	}{{time.Minute, largeRequest - 1, false}, {time.Minute, largeRequest, true}, {2 * time.Minute, 2*largeRequest - 1, false}, {2 * time.Minute, 2 * largeRequest, true}, {unreadMost, 10 * largeRequest, false}} {
		if got := s.goesOn(c.came, now.Add(c.in)); got != c.want || got && !s.listens.Equal(now.Add(c.in+unreadLeast)) {
			t.Errorf("%d: %v, until %v", i, got, s.listens.Sub(now))
		}
	}
}

// narrow is a way on which 100 KB a second come.
type narrow struct{ net.Conn }

func (c narrow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 10_000)])
	time.Sleep(time.Duration(n) * time.Second / 100_000)
	return n, err
}

// An origin that reads on only once what it answers has gone is not one that reads no more: a large
// response takes its time on its way, and a relay that applies one lets no other in.
func TestP54_AnOriginThatAnswersBeforeItReads(t *testing.T) {
	for what, c := range map[string]struct {
		absentAfter, applies time.Duration
		answer               int
	}{
		"a large response":                     {15 * time.Second, 0, 9000},
		"the relay is busy":                    {15 * time.Second, 2 * time.Minute, 1000},
		"names have just a second":             {time.Second, 0, 4000},
		"they do, and the relay is busy":       {time.Second, 10 * time.Second, 400},
		"a response that is large and applied": {15 * time.Second, 45 * time.Second, 6000},
	} {
		t.Run(what, func(t *testing.T) {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				some, goOn := new(atomic.Int64), make(chan struct{})
				some.Store(3)
				f := n.origin("one", grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
					if strings.Contains(i.FullMethod, "Health") {
						return h(srv, ss)
					}
					return h(srv, readsLater{ss, some, goOn})
				}))
				dial := func(ctx context.Context, name string) (net.Conn, error) {
					c, err := n.dial(ctx, name)
					return narrow{c}, err
				}
				r := startRelay(t, Options{Variant: v, AbsentAfter: c.absentAfter, Dialer: dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, addressOf("one"))
				sink := newTestSink()
				stream := r.client.NewStream("key", nil, busySink{sink, cds, c.applies})
				stream.SetInterest(sink.want(named(rds, "a")))
				r.wg.Go(func() { _ = stream.Run(r.ctx) })
				s := f.opens()
				s.request()
				s.send(resp{typ: rds, res: clusters("a")})
				sink.untilNames(t, rds, "a")
				s.request() // ACK
				stream.SetInterest(sink.want(named(rds, "a"), named(cds, "b", "c")))
				s.request()
				s.send(resp{typ: cds, res: clusters("b")})
				time.Sleep(time.Second)
				stream.SetInterest(sink.want(named(rds, "a"), named(cds, "b", "c"), named(eds, long()[:250]...)))
				began := time.Now()
				r.wg.Go(func() {
					s.send(resp{typ: cds, res: []res{{name: "b"}, {name: "c", content: strings.Repeat("x", 1000*c.answer)}}})
					s.send(resp{typ: rds, res: clusters("a")}) // once that has gone
					close(goOn)
				})
				for sink.is(cds, "c") != xds.Present && time.Since(began) < 10*time.Minute {
					time.Sleep(time.Second)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if at := r.client.Origins()[0]; at.Reconnects != 0 {
					t.Errorf("%+v", at)
				}
			})
		})
	}
}
