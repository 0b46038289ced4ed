package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

func TestWithoutTokenOnlyLoopback(t *testing.T) {
	run := func(r *serverFixture, address string) error {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("this host has no %s: %v", address, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = r.Server.Run(ctx, l)
		if c, dial := net.Dial("tcp", l.Addr().String()); dial == nil {
			_ = c.Close()
			t.Errorf("%s is still open", address)
		}
		return err
	}
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		err := run(newServer(t, nil), address)
		if err == nil || !strings.Contains(err.Error(), "needs admin.token_file, because the address is not loopback") {
			t.Errorf("%s: %v", address, err)
		}
		withToken := newServer(t, func(o *Options) { o.Config.TokenFile = write(t, "token", "t") })
		if err := run(withToken, address); err != nil {
			t.Errorf("%s with a token: %v", address, err)
		}
	}
	if err := run(newServer(t, nil), "127.0.0.1:0"); err != nil {
		t.Errorf("loopback: %v", err)
	}
}

func TestTLS(t *testing.T) {
	ca, dir := tlstest.NewAuthority(t), t.TempDir()
	renew := func(name string) (files config.AdminTLS) {
		files.CertFile, files.KeyFile = ca.Pair(t, tlstest.CN(name), tlstest.Loopback()).Write(t, dir, "admin")
		return files
	}
	files := renew("first")
	r := serve(t, func(o *Options) { o.Config.TLS = files })
	plain := r.do("GET", "/live", "")
	if plain.StatusCode == 200 {
		t.Error("plaintext is answered")
	}
	r.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
	r.url = strings.Replace(r.url, "http:", "https:", 1)
	if got := r.get("/live", nil); got.TLS == nil || got.ProtoMajor != 1 {
		t.Errorf("%s over %v", got.Proto, got.TLS)
	}

	renew("second")
	r.Server.Certificates().Reload()
	r.client.CloseIdleConnections()
	if got := r.get("/live", nil).TLS.PeerCertificates[0].Subject.CommonName; got != "second" {
		t.Errorf("after a renewal it shows %q", got)
	}
	o := newServer(t, nil).opts
	o.Config.TLS = config.AdminTLS{CertFile: files.CertFile, KeyFile: files.CertFile}
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "admin.tls: ") {
		t.Errorf("a certificate for a key: %v", err)
	}
}

// Run ends with all connections, also idle and slow ones.
func TestRunEnds(t *testing.T) {
	r := serve(t, nil)
	r.get("/live", nil)
	idle := xdstest.Must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer idle.Close()
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		if res, err := r.client.Get(r.url + "/debug/pprof/trace?seconds=600"); err == nil {
			_ = res.Body.Close()
		}
	}()
	for !trace.IsEnabled() {
		r.get("/live", nil)
	}
	begun := time.Now()
	xdstest.NoError(t, r.stop())
	if trace.IsEnabled() {
		t.Error("the trace goes on")
	}
	<-cut
	if took := time.Since(begun); took > 2*grace+5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Run does not return before its handlers have, although it cuts their connections.
func TestRunWaitsForWhatItServes(t *testing.T) {
	r := serve(t, nil)
	r.shown.block, r.shown.asked = make(chan struct{}), make(chan struct{}, 1)
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		if res, err := r.client.Get(r.url + "/clients"); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-r.shown.asked
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.stop() // reported by the cleanup
	}()
	<-cut
	select {
	case <-ended:
		t.Error("Run returned while a request was read for")
	case <-time.After(100 * time.Millisecond):
	}
	close(r.shown.block)
	<-ended
}

func TestRunTellsThatTheListenerFailed(t *testing.T) {
	r := newServer(t, nil)
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = l.Close()
	if err := r.Server.Run(context.Background(), l); err == nil || !strings.HasPrefix(err.Error(), "admin 127.0.0.1:") {
		t.Errorf("%v", err)
	}
}
