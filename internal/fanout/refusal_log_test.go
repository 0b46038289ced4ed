package fanout

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// A client that is refused and comes again and again is a line, and then one each
// while that counts; so are all those of a key that are refused for the key. Once
// they come no more there are no more lines, and later they are told anew.
func TestWhoIsRefusedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		l := newRefusalLog(slog.New(slog.NewTextHandler(&log, nil)), newSparing())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.run(ctx); close(done) }()
		refuse := func(r *Refusal, node string, port int) {
			l.note("ended a stream", r, node, fmt.Sprintf("10.0.0.1:%d", port), "10.0.0.1", time.Now())
		}
		unmapped := Refuse(codes.PermissionDenied, telemetry.Unmapped, "no rule")
		away := func(i int) *Refusal { // says something else each time
			r := Refuse(codes.Unavailable, telemetry.OriginUnreachable, "port %d", i)
			r.Key = "web"
			return r
		}
		const millis = "2006-01-02T15:04:05.000Z07:00"
		last := "last=" + time.Now().Add(19*time.Second).Format(millis)
		for i := range 20 {
			refuse(unmapped, "a", i)
			refuse(away(i), fmt.Sprint("n", i), i)
			time.Sleep(time.Second)
		}
		refuse(unmapped, "b", 1)
		if n := log.count("\n"); n != 3 {
			t.Errorf("%d lines of two clients and a key:\n%s", n, &log.text)
		}
		time.Sleep(refusalEvery - 20*time.Second + time.Millisecond)
		synctest.Wait()
		for _, line := range []string{
			`msg="ended a stream again" node=a peer=10.0.0.1:19 reason=unmapped code=PermissionDenied error="no rule" more=19 count=20 for=19s ` + last,
			`msg="ended a stream again" node=n19 peer=10.0.0.1:19 reason=origin_unreachable code=Unavailable key=web more=19 count=20 for=19s ` + last,
		} {
			if log.count(line+"\n") != 1 {
				t.Errorf("no %s in\n%s", line, &log.text)
			}
		}
		time.Sleep(3 * refusalEvery)
		if n := log.count("\n"); n != 5 {
			t.Errorf("%d lines, though nobody came any more", n)
		}
		refuse(unmapped, "a", 1)
		refuse(unmapped, "a", 2)
		cancel()
		<-done
		if log.count(`msg="ended a stream" node=a`) != 2 || log.count("more=1 count=2 for=0s last="+time.Now().Format(millis)+"\n") != 1 {
			t.Error(&log.text)
		}
	})
}

// Whoever comes under ever other names has a line each, within what is bounded, and
// takes no more memory for it.
func TestRefusedUnderManyNames(t *testing.T) {
	var log logged
	l := newRefusalLog(slog.New(slog.NewTextHandler(&log, nil)), newSparing())
	r := Refuse(codes.PermissionDenied, telemetry.Unmapped, "no rule")
	for i := range 10 * maxTurnedAways {
		l.note("ended a stream", r, fmt.Sprint(i), "10.0.0.1:5", "10.0.0.1", time.Now())
	}
	if len(l.known) != maxTurnedAways {
		t.Errorf("%d are known", len(l.known))
	}
	if n := strings.Count(log.text.String(), "\n"); n < sparingBurst || n > 2*sparingBurst {
		t.Errorf("%d lines", n)
	}
}

// A node's id may be as long as a node: what is logged, kept and answered of it is not.
func TestRefusalsOfLongNames(t *testing.T) {
	var log logged
	r := newRig(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r.addr = r.listen(&Gate{Key: "downstream", Identity: mustIdentity(t, "false"), Secrets: config.SecretsMTLS})
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(strings.Repeat("n", 100_000)), TypeUrl: string(xds.ClusterType)})
	s := c.ends()
	if s.Code() != codes.PermissionDenied || len(s.Message()) > 1000 {
		t.Errorf("ended with %v and %d bytes: %.200s", s.Code(), len(s.Message()), s.Message())
	}
	r.eventually(func() bool { return log.count("ended a stream") > 0 })
	if n := log.count("n"); n > 1000 {
		t.Errorf("%d letters of the id are logged", n)
	}
}

// A client that cannot make a TLS handshake, and tries it again and again, is a line like
// whoever else is refused: for each reason, whatever port it comes from and whenever.
func TestHandshakesThatFailAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		l := newRefusalLog(slog.New(slog.NewTextHandler(&log, nil)), newSparing())
		fails := func(peer string, why error) { l.handshake("downstream", peer, why, time.Now()) }
		for i := range 20 {
			fails(fmt.Sprint("10.0.0.1:", 4000+i), x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time " + time.Now().Format(time.RFC3339) + " is after 1999-12-31"})
			fails(fmt.Sprint("10.0.0.1:", 5000+i), fmt.Errorf("read tcp 10.0.0.9:15010->10.0.0.1:%d: i/o timeout", 5000+i))
			time.Sleep(time.Second)
		}
		fails("10.0.0.2:4000", errors.New("tls: no certificate"))
		if n := log.count("\n"); n != 3 || log.count(`level=WARN msg="a client's TLS handshake failed" peer=10.0.0.`) != 3 {
			t.Errorf("%d lines of two peers, one of them with two reasons:\n%s", n, &log.text)
		}
		l.tell()
		if n := log.count("\n"); n != 5 || log.count(`level=WARN msg="a client's TLS handshake failed again" peer=10.0.0.1:4019 listener=downstream`) != 1 || log.count("more=19 count=20 for=19s last=") != 2 {
			t.Errorf("%d lines:\n%s", n, &log.text)
		}
	})
}

// What is remembered of a handshake that failed is its words, and not too many of them: a
// client's certificates are as large as it likes, and so is what is quoted of them.
func TestHandshakesThatFailAreRememberedByTheirWords(t *testing.T) {
	l := newRefusalLog(slog.New(slog.DiscardHandler), newSparing())
	var shown weak.Pointer[x509.Certificate]
	func() {
		cert := &x509.Certificate{Raw: make([]byte, 1<<20)}
		shown = weak.Make(cert)
		why := fmt.Errorf("%s: %w", strings.Repeat("a name ", 1000), &tls.CertificateVerificationError{
			UnverifiedCertificates: []*x509.Certificate{cert}, Err: x509.UnknownAuthorityError{Cert: cert},
		})
		for range 2 {
			l.handshake("downstream", "10.0.0.1:4000", why, time.Now())
		}
	}()
	runtime.GC()
	if shown.Value() != nil {
		t.Error("the certificate is kept")
	}
	if n := len(fmt.Sprint(l.due())); n > 2*maxSentAwayText {
		t.Errorf("%d bytes are kept", n)
	}
}

// Who is refused for its first request as a whole is named none the less, as far as its
// node came before what is wrong, and not at length.
func TestRefusalsOfFirstRequestsNameTheNode(t *testing.T) {
	long := strings.Repeat("n", 1000)
	for name, of := range map[string]struct {
		names  []string
		node   string
		reason telemetry.Reason
		status int // of a poll
	}{
		"many":  {[]string{"a", "b", "c"}, "envoy-1", telemetry.LimitNamesPerStream, http.StatusRequestEntityTooLarge},
		"long":  {[]string{strings.Repeat("x", 3000)}, "envoy-2", telemetry.NameBytes, http.StatusBadRequest},
		"large": {nil, long, telemetry.LimitNodeBytes, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			r := newREST(t, func(o *Options) {
				o.Log = slog.New(slog.NewTextHandler(&log, nil))
				o.Limits.NamesPerStream, o.Limits.NodeBytes = 2, 500
			})
			if of.reason == telemetry.NameBytes {
				s := *r.srv.settings()
				s.Limits.NamesPerStream = 0
				r.srv.Reconfigure(s)
			}
			c := r.delta(nil)
			c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(of.node), TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: of.names})
			_ = c.ends()
			is := of.node[:min(len(of.node), maxNodeText)]
			r.eventually(func() bool { return log.count(`msg="ended a stream" node=`+is+" ") == 1 })
			away := func() bool {
				return slices.ContainsFunc(r.srv.SentAway(), func(a SentAway) bool { return a.Reason == of.reason.String() && a.Node == is })
			}
			if !away() {
				t.Errorf("%+v", r.srv.SentAway())
			}
			r.refused(<-r.beginAs(testContext(t), r.web("http1"), node(of.node), xds.EndpointType, "", of.names...), of.status)
			if log.count(`msg="refused a poll" node=`+is+" ") != 1 {
				t.Error(&log.text)
			}
		})
	}
}
