package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// The relay tries each origin at its start, without a client. An origin that it cannot reach is
// away, with the words of the resolver, the dialer or the TLS library. A key's stream fails with
// the same words.
func TestWrongOriginsShowWithoutAClient(t *testing.T) {
	ca, other := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	trust := &connections.TLSFiles{CAFile: tlstest.File(t, t.TempDir(), "ca", ca.PEM()), ServerName: "origin.test"}
	secure := func(by *tlstest.Authority) string {
		return secured(t, by.Pair(t, tlstest.DNS("origin.test")), nil).address
	}
	plain := startFake(t)
	missing := filepath.Join(t.TempDir(), "missing")
	withoutALPN := func(protocols ...string) string {
		conf := &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, tlstest.DNS("origin.test")).TLS(t)}, NextProtos: protocols}
		return listenWith(t, func(c net.Conn) { _ = tls.Server(c, conf).Handshake() })
	}
	http1 := listenWith(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	blackHole := listenWith(t, func(net.Conn) {})
	for _, c := range []struct {
		name    string
		origin  OriginOptions
		timeout time.Duration // of connecting; zero: the usual one
		want    string        // part of the error
	}{
		{"unknown host", OriginOptions{Address: "nowhere.invalid:18000"}, 0, "lookup nowhere.invalid"},
		{"unknown host, pick_first", OriginOptions{Address: "dns:///nowhere.invalid:18000", Balance: "pick_first"}, 0, "lookup nowhere.invalid"},
		{"refused port", OriginOptions{Address: "127.0.0.1:1"}, 0, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{"refused port, pick_first", OriginOptions{Address: "127.0.0.1:1", Balance: "pick_first"}, 0, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{"TLS to plaintext", OriginOptions{Address: plain.address, TLS: trust}, 0, "the server does not speak TLS; check the port in upstream.origins[].address, or leave out upstream.origins[].tls"},
		{"plaintext to TLS", OriginOptions{Address: secure(ca)}, 0, "the server closed the connection; if it needs TLS, set upstream.origins[].tls"},
		{"plaintext to a member's TLS", OriginOptions{Address: secure(ca), Member: true}, 0, "the server closed the connection; if it needs TLS, set cluster.tls"},
		{"TLS without ALPN", OriginOptions{Address: withoutALPN(), TLS: trust}, 0, "the server's TLS does not offer HTTP/2 (ALPN h2)"},
		{"TLS with HTTP/1.1 alone", OriginOptions{Address: withoutALPN("http/1.1"), TLS: trust}, 0, "the server's TLS does not offer HTTP/2 (ALPN h2)"},
		{"another authority", OriginOptions{Address: secure(other), TLS: trust}, 0, "certificate signed by unknown authority"},
		{"HTTP/1.1", OriginOptions{Address: http1}, 0, "does not speak HTTP/2; if it needs TLS, set upstream.origins[].tls"},
		{"no answer", OriginOptions{Address: blackHole}, 300 * time.Millisecond, "connected, but no HTTP/2 within 300ms"},
		{"missing directory", OriginOptions{Address: "file://" + missing}, 0, "read directory: open " + missing + ": no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log xdstest.Log
			r := newRelay(t, xds.SotW, Options{Origins: []OriginOptions{c.origin}, Log: log.Logger()})
			at := r.client.origins[0]
			if c.timeout > 0 {
				r.reconnect(func(o *connections.Options) { o.Timeout = c.timeout })
			}
			r.launch()
			r.until("the origin to be away", func() bool { return at.status().Away })
			if st := at.status(); !st.Reached.IsZero() || st.Connections != 0 || !strings.Contains(st.LastError, c.want) {
				t.Errorf("%+v, want %q", st, c.want)
			}
			if n := at.metrics.Away.Value(); n != 1 {
				t.Errorf("upstream_away is %d", n)
			}
			_, sink := r.stream(named(rds, "a"))
			sink.Until(t, "failure", func() bool { return sink.lastStatus().Failed })
			if first := sink.statuses[0]; first.Origin != at.Name || first.Err != nil || first.Connected {
				t.Errorf("before it failed: %+v", first)
			}
			if err := sink.lastStatus().Err; !strings.Contains(err.Error(), c.want) {
				t.Errorf("the stream failed with %q, want %q", err, c.want)
			}
			r.until("one log line", func() bool {
				return log.Count(at.text("origin is away", "member is away")) == 1 && log.Count("never_reached=true") == 1
			})
		})
	}
}

// The relay keeps one connection without streams. While the origin is gone it is away, also
// without a client. It is back once the connection is ready: it need not answer anything.
func TestConnectionIsKept(t *testing.T) {
	for _, balance := range []string{"round_robin", "pick_first"} {
		synctest.Test(t, func(t *testing.T) {
			var log xdstest.Log
			n := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
			r := startRelay(t, xds.SotW, Options{Origins: []OriginOptions{{Address: addressOf("one"), Name: "one", Balance: balance, Keepalive: Keepalive{Time: 1000 * time.Hour}}},
				Dialer: n.dial, Backoff: steep, Log: log.Logger()})
			is := func(what string, away, reached bool, connections int) {
				t.Helper()
				synctest.Wait()
				st := r.client.Origins()[0]
				metric, up := r.counted(`upstream_away{origin="one"}`), r.counted(`upstream_connected{origin="one"}`)
				if st.Away != away || metric == 1 != away || st.Reached.IsZero() == reached || st.Connections != connections || up != connections || st.Streams != 0 {
					t.Fatalf("%s, %s: %+v, away by the metric %d, connected %d", balance, what, st, metric, up)
				}
			}
			time.Sleep(time.Second)
			is("before it is there", true, false, 0)
			f := n.origin("one")
			time.Sleep(time.Minute)
			is("once it is there", false, true, 1)
			time.Sleep(24 * time.Hour)
			is("a day later", false, true, 1)
			n.mu.Lock()
			delete(n.at, "one")
			n.mu.Unlock()
			f.server.Stop()
			time.Sleep(time.Minute)
			is("once it is gone", true, true, 0)
			n.origin("one")
			time.Sleep(time.Minute)
			is("once it is back", false, true, 1)
			if n := log.Count(`"origin is back: connected, no answer yet"`); n != 2 {
				t.Errorf("it is back %d times:\n%s", n, &log)
			}
		})
	}
}

// An origin that ends streams without a response is away although its connection is ready. Once it
// keeps a stream and answers nothing on it, it is silent, and no longer away.
func TestSilentOriginIsNotAway(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		synctest.Wait() // until the connection is ready
		_, sink := r.stream(named(rds, "a"))
		f.next().done <- nil
		synctest.Wait()
		if st := r.client.Origins()[0]; !st.Away || st.Connections != 1 {
			t.Fatalf("after a stream without a response: %+v", st)
		}
		f.opens()
		sink.muted(t)
		if st := r.client.Origins()[0]; st.Away || !st.AwaySince.IsZero() || st.Silent != 1 {
			t.Errorf("once it is silent: %+v", st)
		}
	})
}

// An origin that ends each stream stays away, however often its connection is made again. It is
// back at a response, or if no stream failed for a while.
func TestConnectionIsNoReturnWhileStreamsFail(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		var log xdstest.Log
		f := n.origin("one", grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Minute, MaxConnectionAgeGrace: time.Second}))
		r := startRelay(t, v, Options{Origins: []OriginOptions{{Address: addressOf("one"), Name: "one"}}, Dialer: n.dial, Backoff: steep, Log: log.Logger()})
		synctest.Wait()
		says := func(away, back int) {
			t.Helper()
			synctest.Wait()
			if a, b := log.Count(`"origin is away"`), log.Count(`"origin is back`); a != away || b != back {
				t.Fatalf("away %d and back %d times, want %d and %d:\n%s", a, b, away, back, &log)
			}
			if is, want := r.counted(`upstream_away{origin="one"}`), away-back; is != want {
				t.Fatalf("the metric is %d, want %d", is, want)
			}
		}
		fails := func(d time.Duration) {
			for end := time.After(d); ; {
				select {
				case s := <-f.streams:
					s.done <- status.Error(codes.Unimplemented, "unknown service")
				case <-end:
					return
				}
			}
		}
		ctx, cancel := context.WithCancel(r.ctx)
		r.ctx = ctx
		_, sink := r.stream(named(rds, "a"))
		fails(30 * time.Minute)
		says(1, 0)
		n.mu.Lock()
		if len(n.dials) < 20 {
			t.Errorf("only %d connections", len(n.dials))
		}
		n.mu.Unlock()
		f.opens().send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
		says(1, 1)
		fails(30 * time.Minute)
		says(2, 1)

		cancel()
		time.Sleep(5 * time.Minute)
		says(2, 2)
	})
}

// An attempt that began before the origin was reached, and failed after that, does not make it
// away.
func TestOldFailureMeansNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRelay(t, xds.SotW, Options{}, "127.0.0.1:1").client.origins[0]
		began := time.Now()
		time.Sleep(time.Second)
		s.connected()
		s.ended(attemptEnd{opened: true}, errTest, began)
		if s.isAway() {
			t.Error("away")
		}
		s.ended(attemptEnd{opened: true}, errTest, time.Now())
		if !s.isAway() {
			t.Error("not away")
		}
	})
}

// The relay's port differs in each attempt. It is not part of an error, so that the error stays the
// same.
func TestErrorHasNoLocalAddress(t *testing.T) {
	reset := listenWith(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
	ca := tlstest.File(t, t.TempDir(), "ca", tlstest.NewAuthority(t).PEM())
	r := startRelay(t, xds.SotW, Options{Origins: []OriginOptions{{Address: reset, TLS: &connections.TLSFiles{CAFile: ca, ServerName: "origin.test"}}}})
	at := r.client.origins[0]
	r.until("the origin to be away", func() bool { return at.status().Away })
	if got, want := at.status().LastError, "authentication handshake failed: read tcp "+reset+": read: connection reset by peer"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c, err := at.transport.(*grpcOrigin).pool.First()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		c.Explain(status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: lookup o: read udp 10.0.0.1:40000->10.0.0.2:53: i/o timeout"`)),
		ended(status.Error(codes.Unavailable, "error reading from server: read tcp [::1]:40000->[::2]:18000: connection reset by peer")),
	} {
		if strings.Contains(err.Error(), "40000") {
			t.Errorf("%q has the relay's port", err)
		}
	}
}

// An origin's name that gets another address is used soon, also if the old address is gone.
func TestP54_AnotherAddressOfTheName(t *testing.T) {
	first, second := sameOrigin(t)
	dns := xdstest.StartDNS(t, "origin.test")
	host, port, _ := net.SplitHostPort(first.address)
	dns.Set(host)
	r := startRelay(t, xds.Delta, Options{}, fmt.Sprintf("dns://127.0.0.1:%d/origin.test:%s", dns.Port, port))
	_, sink := r.stream(named(rds, "a"))
	first.serve(1).send(resp{Type: rds, Resources: clusters("a")})
	sink.UntilNames(t, rds, "a")
	host, _, _ = net.SplitHostPort(second.address)
	dns.Set(host)
	began := time.Now()
	first.server.Stop()
	second.serve(1)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the new address is used after %s", took)
	}
}

// sameOrigin starts two origins with one port and two addresses.
func sameOrigin(t *testing.T) (first, second *fakeOrigin) {
	for range 10 {
		one, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		two, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", one.Addr().(*net.TCPAddr).Port))
		if err == nil {
			return serveFake(t, one), serveFake(t, two)
		}
		_ = one.Close() // another program has the port at the second address
	}
	t.Fatal("no port is free at two addresses")
	return nil, nil
}

// listenWith accepts connections on loopback and calls answer for each.
func listenWith(t *testing.T, answer func(net.Conn)) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(done)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			answer(c)
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return lis.Addr().String()
}
