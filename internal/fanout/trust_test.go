package fanout

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
)

// trusting is a gate whose authorities are those of a pool that can be swapped, as
// those of files are.
func (c *certs) trusting(pool *atomic.Pointer[x509.CertPool]) *Gate {
	own := c.server(false)
	return &Gate{
		Key: "downstream", Secrets: config.SecretsMTLS, Identity: mustIdentity(c.t.(*testing.T), itself), Roots: pool.Load,
		TLS: &tls.Config{NextProtos: own.NextProtos, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := own.Clone()
			now.ClientCAs, now.ClientAuth, now.SessionTicketsDisabled = pool.Load(), tls.RequireAndVerifyClientCert, true
			return now, nil
		}},
	}
}

// from is the TLS of a client with a certificate of another authority.
func (c *certs) from(ca *tlstest.Authority, says ...tlstest.Option) *tls.Config {
	return &tls.Config{RootCAs: c.ca.Pool(), Certificates: []tls.Certificate{ca.Pair(c.t, says...).TLS(c.t)}}
}

func both(t testing.TB, as ...*tlstest.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range as {
		if !p.AppendCertsFromPEM(a.PEM()) {
			t.Fatal("no certificate")
		}
	}
	return p
}

// turnedAway fails unless a stream of the client comes to nothing: it is ended at
// once, or there is no connection for it.
func (r *rig) turnedAway(conn *grpc.ClientConn) {
	r.t.Helper()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(testContext(r.t))
	if err == nil {
		_ = st.Send(&discoveryv3.DeltaDiscoveryRequest{Node: identified(), TypeUrl: string(xds.SecretType), ResourceNamesSubscribe: []string{"s"}}) // Recv says why not
		_, err = st.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		r.t.Fatal(err)
	}
}

const itsID = "spiffe://test/n"

func identified() *corev3.Node { return &corev3.Node{Id: itsID, Cluster: "edge"} }

// Who was let in by an authority that is withdrawn is let out: its streams end, it is
// given nothing on the connection that it has, and it gets no other. Those whom
// another authority vouches for go on.
func TestP6_WithdrawnAuthorityEndsWhoItVouchedFor(t *testing.T) {
	c := newCerts(t)
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			var log logged
			r := newRig(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			r.house.group("edge").publish(update(t, xds.SecretType, "s"), update(t, xds.RuntimeType, "r"))
			a, b := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
			var pool atomic.Pointer[x509.CertPool]
			pool.Store(both(t, a, b))
			addr := r.listen(c.trusting(&pool))
			stolen, d := r.dialCounting(addr, c.from(a, tlstest.URI(itsID)))
			ends := r.ads(stolen, v)
			ends.ask(identified(), xds.SecretType, "s")
			ends.gets(xds.SecretType)
			stays := r.ads(r.dialTo(addr, c.from(b, tlstest.URI(itsID))), v)
			stays.ask(identified(), xds.SecretType, "s")
			stays.gets(xds.SecretType)

			pool.Store(both(t, b))
			r.srv.Rekey(0, ByAuthorities)
			if said := ends.ended(codes.Unavailable); !strings.Contains(said, "certificate") {
				t.Error(said)
			}
			r.counted(telemetry.Certificate, 1)
			<-d.all()[0].over
			r.turnedAway(stolen)
			stays.ask(nil, xds.RuntimeType, "r")
			stays.gets(xds.RuntimeType)
			r.counted(telemetry.Certificate, 1)
			if log.count("authorities changed: clients whose certificates hold no more are ended") != 1 {
				t.Error(log.text.String())
			}
		})
	}
}

// A stream that opens on a connection from before is held against the authorities as
// they are then, whether anybody looked at it or not.
func TestP6_EachStreamIsHeldAgainstTheAuthorities(t *testing.T) {
	c := newCerts(t)
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newRig(t, nil)
			r.house.group("edge").publish(update(t, xds.SecretType, "s"))
			a := tlstest.NewAuthority(t)
			var pool atomic.Pointer[x509.CertPool]
			pool.Store(both(t, a))
			conn, _ := r.dialCounting(r.listen(c.trusting(&pool)), c.from(a, tlstest.URI(itsID)))
			before := r.ads(conn, v) // keeps the connection
			before.ask(identified(), xds.SecretType, "s")
			before.gets(xds.SecretType)
			pool.Store(both(t, c.ca))
			for range 5 {
				r.turnedAway(conn)
			}
			r.counted(telemetry.Certificate, 1) // it was told to come by another connection, which is refused
		})
	}
}

// A stream that opens just when an authority is withdrawn is not forgotten.
func TestP6_WithdrawnWhileAStreamJoins(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, nil)
	a := tlstest.NewAuthority(t)
	var pool atomic.Pointer[x509.CertPool]
	pool.Store(both(t, a))
	r.house.mu.Lock()
	r.house.joined = func() {
		pool.Store(both(t, c.ca))
		r.srv.Rekey(0, ByAuthorities)
	}
	r.house.mu.Unlock()
	p := r.ads(r.dialTo(r.listen(c.trusting(&pool)), c.from(a, tlstest.URI(itsID))), xds.Delta)
	p.ask(identified(), xds.SecretType, "s")
	p.ended(codes.Unavailable)
	r.counted(telemetry.Certificate, 1)
}

// A certificate that expires ends its streams.
func TestP6_ExpiredCertificateEnds(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, nil)
	r.house.group("edge").publish(update(t, xds.SecretType, "s"))
	var pool atomic.Pointer[x509.CertPool]
	pool.Store(both(t, c.ca))
	// To the second, as certificates have it.
	until := time.Now().Add(3 * time.Second).Truncate(time.Second)
	conn := r.dialTo(r.listen(c.trusting(&pool)), c.client(tlstest.URI(itsID), func(x *x509.Certificate) {
		x.NotBefore, x.NotAfter = until.Add(-time.Hour), until
	}))
	p := r.ads(conn, xds.Delta)
	p.ask(identified(), xds.SecretType, "s")
	p.gets(xds.SecretType)
	p.ended(codes.Unavailable)
	if now := time.Now(); now.Before(until) {
		t.Errorf("ended %s before it expired", until.Sub(now))
	}
	r.counted(telemetry.Certificate, 1)
}

// Streams of one certificate end over drain once it has expired, and not when only
// one of its chains has. Nothing is waited for of streams that have left.
func TestP6_ExpiryIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 10 * time.Second
		s, _ := bubble(t, func(o *Options) { o.Drain, o.MaxConnectionAge = drain, 100*time.Hour })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		ca := tlstest.NewAuthority(t)
		until := time.Now().Add(30 * time.Minute)
		leaf := ca.Pair(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now(), until }).TLS(t).Leaf
		var pool atomic.Pointer[x509.CertPool]
		pool.Store(both(t, ca))
		chains, err := verify([]*x509.Certificate{leaf}, pool.Load(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		caller := (&Gate{Roots: pool.Load}).Caller("10.0.0.1:1", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: chains})
		if caller.provenBy(pool.Load()); !caller.trust.Load().until.Equal(leaf.NotAfter) {
			t.Error(caller.trust.Load().until)
		}
		// By another chain, which holds for less long: when it expires, there is this one.
		was := &trust{pool.Load(), time.Now().Add(time.Minute)}
		caller.trust.Store(was)
		const n = 100
		var streams []*stream
		for range n {
			st := &stream{srv: s, opened: time.Now(), fin: new(ending), conn: &conn{in: new(listener)}, caller: caller}
			if !s.add(st) || st.trusted() != nil {
				t.Fatal("not taken")
			}
			streams = append(streams, st)
		}
		if caller.trust.Load() != was {
			t.Error("what was proven was verified again")
		}
		for _, st := range streams[n/2:] {
			s.remove(st)
		}
		time.Sleep(30*time.Minute + drain)
		synctest.Wait()
		early, late := 0, 0
		for i, st := range streams {
			e := st.fin.(*ending)
			if i >= n/2 {
				if len(e.at) != 0 {
					t.Error("ended after it had left")
				}
				continue
			}
			if len(e.at) != 1 || e.code != codes.Unavailable || !e.at[0].After(until) || e.at[0].After(until.Add(drain+time.Nanosecond)) {
				t.Fatalf("stream %d ended at %v with %v", i, e.at, e.code)
			}
			if e.at[0].Before(until.Add(drain / 2)) {
				early++
			} else {
				late++
			}
			s.remove(st)
		}
		if early < n/8 || late < n/8 {
			t.Errorf("%d ended in the first half of drain, %d in the second", early, late)
		}
		s.ages.mu.Lock()
		if left := len(s.ages.due); left != 0 {
			t.Errorf("%d streams are waited for", left)
		}
		s.ages.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What is kept says until when a chain holds: its first certificate to expire, of the
// chain that holds longest.
func TestP6_ChainsHoldAsLongAsTheyDo(t *testing.T) {
	at := func(h int) *x509.Certificate { return &x509.Certificate{NotAfter: time.Unix(int64(h)*3600, 0)} }
	for _, tc := range []struct {
		chains [][]*x509.Certificate
		want   int
	}{
		{[][]*x509.Certificate{{at(3), at(5)}}, 3},
		{[][]*x509.Certificate{{at(5), at(3)}}, 3},
		{[][]*x509.Certificate{{at(5), at(3)}, {at(5), at(4), at(9)}, {at(1)}}, 4},
	} {
		if got := validUntil(tc.chains); !got.Equal(time.Unix(int64(tc.want)*3600, 0)) {
			t.Errorf("%v, want hour %d", got, tc.want)
		}
	}
	// Without authorities nobody is, and not whom the system would trust.
	c := newCerts(t)
	if _, err := verify([]*x509.Certificate{c.ca.Pair(t).TLS(t).Leaf}, nil, time.Now()); err == nil || !strings.Contains(err.Error(), "no authority") {
		t.Error(err)
	}
}
