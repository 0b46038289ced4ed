package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// New names go upstream merged. While they keep coming, the stream sends at most one request in
// each pause, however many changes there are (P52).
func TestP52_NewNamesGoMerged(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, v, Options{}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		s.got(ask(v, "RDS", "a"))
		names := []string{"a"}
		began, requests := time.Now(), 0
		for i := range 20 {
			for j := range 50 {
				names = append(names, fmt.Sprintf("%02d-%02d", i, j))
				stream.SetInterest(sink.Want(named(rds, names...)))
			}
			last := names[len(names)-1]
			for requests++; !strings.Contains(s.request(), last); {
				requests++
			}
		}
		// The first six take less than a pause of timing.MaxPause each.
		if most := 6 + int(time.Since(began)/timing.MaxPause); requests > most {
			t.Errorf("%d requests in %v, at most %d are allowed", requests, time.Since(began), most)
		}
	})
}

// Between two streams the relay records no resubscriptions, however long the origin is away. The
// next stream requests everything anyway.
func TestP54_ResubscriptionsDoNotPileUpWhileTheOriginIsAway(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, v, Options{dialEvery: time.Hour}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		s.request()
		s.done <- nil
		sink.Until(t, "failure", func() bool { return sink.lastStatus().Failed })
		for i := range 100 {
			stream.SetInterest(sink.Want(named(rds, "a", fmt.Sprint(i))))
		}
		stream.mu.Lock()
		defer stream.mu.Unlock()
		for _, c := range stream.cells {
			if len(c.resubscriptions) > 0 {
				t.Errorf("resubscriptions of %d types are remembered", len(c.resubscriptions))
			}
		}
	})
}

func TestP59_TooLarge(t *testing.T) {
	f := startFake(t)
	cc, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	cs, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methods[xds.Delta],
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(10))
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.SendMsg(&adsclient.Request{}); err != nil {
		t.Fatal(err)
	}
	f.next().raw(make([]byte, 11))
	var msg []byte
	if err := cs.RecvMsg(&msg); !tooLarge(err) {
		t.Errorf("%v does not report the size", err)
	}
}

// While a large update is applied, requests are still sent.
func TestP52_SlowGroupHoldsUpNoRequest(t *testing.T) {
	f := startFake(t)
	r := startRelay(t, xds.Delta, Options{}, f.address)
	sink := newTestSink()
	sink.Gate = make(chan struct{})
	stream := r.run(sink, named(rds, "a"))
	s := f.next()
	s.request()
	s.send(resp{Type: rds, Resources: clusters("a")})
	for i, name := range []string{"b", "c", "d"} { // the update has been waiting since one of them
		stream.SetInterest(sink.Want(named(rds, []string{"a", "b", "c", "d"}[:i+2]...)))
		s.got("RDS +[" + name + "]")
	}
	close(sink.Gate)
	s.got("RDS nonce 1")
}

// A stream that never wants anything ends with its context. The fixture waits for that.
func TestRunWithoutInterest(t *testing.T) {
	startRelay(t, xds.SotW, Options{}, "127.0.0.1:1").stream()
}

func TestGroupErrorEndsRun(t *testing.T) {
	f := startFake(t)
	r := startRelay(t, xds.SotW, Options{}, f.address)
	sink := newTestSink()
	over := errors.New("group is over")
	sink.Fail = over
	stream := r.client.NewSource(testKey, nil, sink, nil)
	stream.SetInterest(sink.Want(named(rds, "a")))
	ended := make(chan error, 1)
	r.wg.Go(func() { ended <- stream.Run(r.ctx) })
	s := f.next()
	s.request()
	s.send(resp{Type: rds, Resources: clusters("a")})
	if err := <-ended; !errors.Is(err, over) {
		t.Errorf("Run returned %v", err)
	}
}

func TestConnectionsHoldSoManyStreamsEach(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t, grpc.MaxConcurrentStreams(10))
		r := startRelay(t, v, Options{Origins: []OriginOptions{{Address: f.address, StreamsPerConnection: 10}}})
		fifty(t, r, f)
		if now, total := f.peers.Counts(); now != 5 || total != 5 {
			t.Errorf("%d connections, %d ever, want 5", now, total)
		}
	})
}

// An origin may allow fewer streams than are configured.
func TestConnectionsAreFoundFull(t *testing.T) {
	f := startFake(t, grpc.MaxConcurrentStreams(10))
	r := newRelay(t, xds.SotW, Options{}, f.address)
	r.client.origins[0].transport.(*grpcOrigin).placeTimeout = 200 * time.Millisecond
	r.launch()
	fifty(t, r, f)
}

// A stream that opens just when it is given up is an error, also if it is not cancelled yet.
func TestOpenedWhenGivenUp(t *testing.T) {
	r := newRelay(t, xds.SotW, Options{}, startFake(t).address)
	r.launch()
	o := r.client.origins[0].transport.(*grpcOrigin)
	o.placeTimeout = 0
	c, err := o.pool.Lease()
	if err != nil {
		t.Fatal(err)
	}
	xdstest.Eventually(t, "the connection", func() error {
		if s := c.CC.GetState(); s != connectivity.Ready {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	for givenUp := false; !givenUp; {
		ctx, cancel := context.WithCancelCause(t.Context())
		cs, err := o.open(ctx, c, func(err error) { time.AfterFunc(time.Second, func() { cancel(err) }) })
		givenUp = cs == nil
		if givenUp && !errors.Is(err, errFull) {
			t.Errorf("no stream, and the error is %v", err)
		}
		cancel(nil)
	}
}

// fifty opens fifty streams. All are open together, and all get responses.
func fifty(t *testing.T, r *relay, f *fakeOrigin) {
	t.Helper()
	sinks := make([]*testSink, 50)
	for i := range sinks {
		_, sinks[i] = r.stream(named(rds, "a"))
	}
	for range sinks {
		s := f.next()
		s.request()
		s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
	}
	for _, s := range sinks {
		s.UntilNames(t, rds, "a")
	}
	if o := r.client.Origins()[0]; o.Streams != 50 {
		t.Errorf("status %+v", o)
	}
}

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		balance string
		limit   int // of streams of a connection
		spread  bool
	}{{"", 0, true}, {"round_robin", 0, true}, {"pick_first", 0, false}, {"round_robin", 1, true}, {"pick_first", 1, false}} {
		balance, spread := c.balance, c.spread
		t.Run(fmt.Sprint(balance, c.limit), func(t *testing.T) {
			one, two := startFake(t), startFake(t)
			m := manual.NewBuilderWithScheme("test" + strings.ReplaceAll(fmt.Sprint(balance, c.limit), "_", ""))
			m.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: one.address}, {Addr: two.address}}})
			resolver.Register(m)
			r := startRelay(t, xds.SotW, Options{Origins: []OriginOptions{{Address: m.Scheme() + ":///x", Balance: balance, StreamsPerConnection: c.limit}}})
			var seen [2]int
			// round_robin sends the first streams to the address that connected first.
			enough := func(i int) bool { return i >= 50 && (!spread || seen[0] > 0 && seen[1] > 0 || i >= 1000) }
			for i := 0; !enough(i); i++ {
				r.stream(named(rds, "a"))
				select {
				case <-one.streams:
					seen[0]++
				case <-two.streams:
					seen[1]++
				case <-time.After(patience):
					t.Fatal("no stream is opened")
				}
			}
			if got := seen[0] > 0 && seen[1] > 0; got != spread {
				t.Errorf("streams at the two addresses: %v", seen)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"no origin":    {},
		"no address":   {Origins: []OriginOptions{{}}},
		"same name":    {Origins: []OriginOptions{{Address: "a:1"}, {Address: "b:1", Name: "a:1"}}},
		"balance":      {Origins: []OriginOptions{{Address: "a:1", Balance: "best"}}},
		"certificates": {Origins: []OriginOptions{{Address: "a:1", TLS: &connections.TLSFiles{CAFile: "/nowhere"}}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Of repeated NACKs, which wait, the first one is a warning.
func TestP18_RepeatedNACKsOnTheWire(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		log := new(xdstest.Log)
		f := n.origin("one")
		r := startRelay(t, v, Options{Dialer: n.dial, Backoff: timing.Backoff{Base: time.Second, Max: time.Second},
			Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, addressOf("one"))
		key, sink := r.stream(named(rds, "a"))
		s := f.opens()
		s.request()
		began := time.Now()
		for range 20 {
			s.send(resp{Type: rds, Resources: clusters("a", "a")})
			if got := s.request(); !strings.Contains(got, "NACK") {
				t.Fatalf("request %q", got)
			}
		}
		if d := time.Since(began); d < time.Second {
			t.Errorf("20 NACKs in %v", d)
		}
		if warn, all := log.Count(`level=WARN msg="relay rejected a response`), log.Count("relay rejected a response"); warn != 1 || all != 20 {
			t.Errorf("%d lines, %d warnings:\n%s", all, warn, log)
		}
		rejected := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := r.client.Origins()[0].Rejected; len(got) != want {
				t.Errorf("%s: %+v", what, got)
			}
		}
		rejected("after NACKs", 1)
		key.SetInterest(sink.Want(named(eds, "b")))
		time.Sleep(time.Second)
		rejected("once nobody wants the type", 0)
		s.raw([]byte("garbage")) // no reply is possible: the stream ends
		f.opens()
	})
}

// When a stream ends, do_not_cache resources are dropped before the next stream lists the held
// versions.
func TestP63_StreamEndDropsUncacheable(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, v, Options{}, f.address)
		_, sink := r.stream(all(cds), named(eds, "a", "b"))
		s := f.next()
		s.got(ask(v, "CDS", "*"))
		s.got(ask(v, "EDS", "a", "b"))
		s.send(resp{Type: cds, Version: "1", Resources: []res{{Name: "w", Version: "1", Uncached: true}, {Name: "x", Version: "1"}}})
		s.send(resp{Type: eds, Version: "1", Resources: []res{{Name: "a", Version: "1", Uncached: true}, {Name: "b", Version: "1"}}})
		sink.UntilNames(t, cds, "w", "x")
		sink.UntilNames(t, eds, "a", "b")
		for range 2 {
			s.request() // ACKs
		}
		s.done <- nil
		next := f.next()
		sink.UntilNames(t, cds, "x")
		sink.UntilNames(t, eds, "b")
		if v == xds.Delta {
			next.got("CDS w= x=")
			next.got("EDS +[a b] a= b=")
		} else {
			next.got("CDS []")
			next.got("EDS [a b]")
		}
	})
}
