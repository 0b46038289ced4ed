package tlsfiles

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sourceFixture is a Source with its files, log and metrics.
type sourceFixture struct {
	*testing.T
	dir     string
	files   Files
	ca      *tlstest.Authority
	metrics *telemetry.Metrics
	log     bytes.Buffer
	src     *Source
	server  *tls.Config // of src
}

// newSourceFixture opens a Source with a certificate named "first".
func newSourceFixture(t *testing.T, withCA bool) *sourceFixture {
	t.Helper()
	r := &sourceFixture{T: t, dir: t.TempDir(), ca: tlstest.NewAuthority(t)}
	r.files.CertFile, r.files.KeyFile = r.pair("first").Write(t, r.dir, "tls")
	if withCA {
		r.files.CAFile = tlstest.File(t, r.dir, "ca", r.ca.PEM())
	}
	r.open()
	return r
}

func (r *sourceFixture) open() {
	r.Helper()
	var err error
	if r.metrics, err = telemetry.New(telemetry.Options{}); err != nil {
		r.Fatal(err)
	}
	r.src = xdstest.Must(Open(r.files, Options{Name: "server", Metrics: r.metrics, Log: slog.New(slog.NewTextHandler(&r.log, nil))}))(r)
	r.server = r.src.Server("h2")
}

func (r *sourceFixture) pair(name string) tlstest.Pair {
	return r.ca.Pair(r, tlstest.CN(name), tlstest.DNS("server.test"))
}

// shake makes a handshake between this client and the source's server. It returns the state at each
// end.
func (r *sourceFixture) shake(conf *tls.Config) (client, server tls.ConnectionState, err error) {
	r.Helper()
	l, dialErr := net.Listen("tcp", "127.0.0.1:0")
	if dialErr != nil {
		r.Fatal(dialErr)
	}
	defer l.Close()
	var theirs error
	var wg sync.WaitGroup
	wg.Go(func() {
		raw, err := l.Accept()
		if err != nil {
			theirs = err
			return
		}
		defer raw.Close()
		c := tls.Server(raw, r.server)
		if theirs = c.Handshake(); theirs == nil {
			server = c.ConnectionState()
			_, theirs = c.Write([]byte("x"))
		}
	})
	raw, dialErr := net.Dial("tcp", l.Addr().String())
	if dialErr != nil {
		r.Fatal(dialErr)
	}
	defer raw.Close()
	c := tls.Client(raw, conf)
	ours := c.Handshake()
	if ours == nil {
		// Reading a byte also reads the session ticket, or the server's alert.
		_, ours = c.Read(make([]byte, 1))
		client = c.ConnectionState()
	}
	if ours != nil {
		_ = raw.Close() // so that the server does not wait
	}
	wg.Wait()
	if ours == nil {
		ours = theirs
	}
	return client, server, ours
}

func (r *sourceFixture) trusting(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: r.ca.Pool(), ServerName: "server.test", Certificates: certs, NextProtos: []string{"h2"}}
}

// shows fails unless the server shows the certificate with that name.
func (r *sourceFixture) shows(name string) {
	r.Helper()
	state, _, err := r.shake(r.trusting())
	if err != nil {
		r.Fatal(err)
	}
	if got := state.PeerCertificates[0].Subject.CommonName; got != name {
		r.Fatalf("the server shows %q, want %q", got, name)
	}
}

func (r *sourceFixture) counted(result string, n int) {
	r.Helper()
	w := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if line := fmt.Sprintf("xdsrelay_certificate_reloads_total{result=%q} %d\n", result, n); !strings.Contains(w.Body.String(), line) {
		r.Fatalf("the metrics do not say %s", line)
	}
}

// New connections use a renewed certificate soon after it was written.
func TestRenewed(t *testing.T) {
	r := newSourceFixture(t, false)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.src.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	r.shows("first")
	for _, name := range []string{"second", "third"} {
		was := r.src.inForce.Load()
		r.pair(name).Write(t, r.dir, "tls")
		for end := time.Now().Add(20 * time.Second); r.src.inForce.Load() == was; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("not reloaded")
			}
		}
		r.shows(name)
	}
	stop()
	running.Wait()
	r.counted("reloaded", 2)
}

// Connected clients are verified again by other authorities. A certificate of the relay alone changes
// no authority.
func TestVerifyClientAfterTheAuthoritiesChanged(t *testing.T) {
	dir, old, other := t.TempDir(), tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	files := Files{CAFile: tlstest.File(t, dir, "ca", old.PEM())}
	files.CertFile, files.KeyFile = old.Pair(t).Write(t, dir, "tls")
	changed := 0
	src := xdstest.Must(Open(files, Options{CAsChanged: func() { changed++ }, Log: slog.New(slog.DiscardHandler)}))(t)
	leaf := func(a *tlstest.Authority) []*x509.Certificate {
		return []*x509.Certificate{a.Pair(t, tlstest.URI("spiffe://a")).TLS(t).Leaf}
	}
	verify := func(wantChanged int, wantOld, wantOther bool) {
		t.Helper()
		src.Reload()
		if a, b := src.VerifyClient(leaf(old)), src.VerifyClient(leaf(other)); (a == nil) != wantOld || (b == nil) != wantOther || changed != wantChanged {
			t.Errorf("%v, %v, changed %d times", a, b, changed)
		}
	}
	old.Pair(t).Write(t, dir, "tls")
	verify(0, true, true) // the handshake has verified them
	tlstest.File(t, dir, "ca", slices.Concat(old.PEM(), other.PEM()))
	verify(1, true, true)
	tlstest.File(t, dir, "ca", other.PEM())
	verify(2, false, true)
}

// Files with the same content are not reloaded.
func TestUnchangedFilesAreNotReloaded(t *testing.T) {
	r := newSourceFixture(t, false)
	r.src.Reload()
	r.counted("reloaded", 0)
	if r.log.Len() > 0 {
		t.Errorf("the log says %s", &r.log)
	}
}

// Files that cannot be used leave the previous certificates in force. The fault does not contain
// their content. It is logged and counted once, however often the files are read.
func TestBrokenFilesLeaveTheOldInForce(t *testing.T) {
	r := newSourceFixture(t, false)
	second := r.pair("second")
	var since *time.Time
	for i, c := range []struct {
		change func()
		says   string
	}{
		{func() { tlstest.File(t, r.dir, "tls.crt", []byte("no certificate")) }, "cert_file: no certificate in "},
		{func() { tlstest.File(t, r.dir, "tls.crt", second.Cert) }, "private key does not match public key"},
		{func() { tlstest.File(t, r.dir, "tls.key", second.Key[:len(second.Key)/2]) }, "key_file: "},
		{func() { _ = os.Remove(r.files.KeyFile) }, "no such file"},
	} {
		r.log.Reset()
		c.change()
		for range 2 {
			if r.src.Reload() {
				t.Errorf("%d: reloaded", i)
			}
		}
		r.shows("first")
		if got := r.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the previous ones stay in force") || !strings.Contains(got, c.says) {
			t.Errorf("%d: the log says %s", i, got)
		}
		if strings.Contains(r.log.String(), strings.Split(string(second.Key), "\n")[1][:20]) {
			t.Errorf("%d: the log quotes the key", i)
		}
		r.counted("failed", i+1)
		f := r.src.Fault()
		if f == nil || !strings.Contains(f.Err.Error(), c.says) || f.Since.IsZero() {
			t.Fatalf("%d: %+v is at fault", i, f)
		}
		if since == nil {
			since = &f.Since
		} else if !since.Equal(f.Since) {
			t.Errorf("%d: at fault since %s, not %s", i, f.Since, since)
		}
	}
	tlstest.File(t, r.dir, "tls.key", second.Key)
	r.src.Reload()
	r.shows("second")
	r.counted("reloaded", 1)
	if f := r.src.Fault(); f != nil {
		t.Errorf("%+v is at fault still", f)
	}
}

// With authorities, each connection of a client needs a valid certificate signed by one of them.
func TestClientsProveThemselves(t *testing.T) {
	r := newSourceFixture(t, true)
	// Without authorities, sessions are resumed: the client below supports it.
	cached := r.trusting()
	cached.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	open := newSourceFixture(t, false)
	cached.RootCAs = open.ca.Pool()
	for _, want := range []bool{false, true} {
		if _, server, err := open.shake(cached); err != nil || server.DidResume != want {
			t.Fatalf("without authorities: resumed %v, %v", server.DidResume, err)
		}
	}
	good := r.ca.Pair(t, tlstest.URI("spiffe://test/a")).TLS(t)
	conf := r.trusting(good)
	conf.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		_, server, err := r.shake(conf)
		if err != nil {
			t.Fatal(err)
		}
		if len(server.VerifiedChains) == 0 || server.PeerCertificates[0].URIs[0].String() != "spiffe://test/a" || server.DidResume {
			t.Errorf("chains %v, resumed %v", server.VerifiedChains, server.DidResume)
		}
	}
	for name, certs := range map[string][]tls.Certificate{
		"no certificate":    nil,
		"another authority": {tlstest.NewAuthority(t).Pair(t, tlstest.URI("spiffe://test/a")).TLS(t)},
		"expired":           {r.ca.Pair(t, tlstest.URI("spiffe://test/a"), tlstest.Expired()).TLS(t)},
	} {
		if _, _, err := r.shake(r.trusting(certs...)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// A client of a removed authority is not trusted any more.
	tlstest.File(t, r.dir, "ca", tlstest.NewAuthority(t).PEM())
	r.src.Reload()
	if _, _, err := r.shake(conf); err == nil {
		t.Error("accepted, though its authority is gone")
	}
}

func TestVersions(t *testing.T) {
	r := newSourceFixture(t, false)
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conf := r.trusting()
		conf.MinVersion, conf.MaxVersion = tls.VersionTLS10, version
		if _, _, err := r.shake(conf); (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	state, _, err := r.shake(r.trusting())
	if err != nil || state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "h2" {
		t.Errorf("%s, %q, %v", tls.VersionName(state.Version), state.NegotiatedProtocol, err)
	}
}

func TestClient(t *testing.T) {
	r := newSourceFixture(t, true)
	c := r.src.Client("name.test")
	if c.MinVersion != tls.VersionTLS12 || c.ServerName != "name.test" || !c.RootCAs.Equal(r.ca.Pool()) || len(c.Certificates) != 1 {
		t.Errorf("%+v", c)
	}
	// Without files: the system's authorities and no certificate.
	r.files = Files{}
	r.open()
	if c := r.src.Client(""); c.RootCAs != nil || len(c.Certificates) != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := r.src.inForce.Load().server(nil); err == nil {
		t.Error("a server without a certificate")
	}
}

// The error names the file by its key.
func TestFaultsShowAtTheStart(t *testing.T) {
	dir := t.TempDir()
	ca := tlstest.NewAuthority(t)
	cert, key := ca.Pair(t).Write(t, dir, "a")
	_, other := ca.Pair(t).Write(t, dir, "b")
	empty := tlstest.File(t, dir, "empty", nil)
	large := filepath.Join(dir, "large")
	xdstest.NoError(t, os.WriteFile(large, nil, 0o600))
	xdstest.NoError(t, os.Truncate(large, maxFile+1))
	for _, c := range []struct {
		Files
		want string
	}{
		{Files{CertFile: cert, KeyFile: key, CAFile: "/nowhere"}, CAFile},
		{Files{CAFile: empty}, CAFile},
		{Files{CAFile: empty, CAKey: "client_ca_file"}, "client_ca_file"},
		{Files{CAFile: "/nowhere", CAKey: "client_ca_file"}, "client_ca_file"},
		{Files{CAFile: key}, CAFile},
		{Files{CAFile: large}, CAFile},
		{Files{CertFile: "/nowhere", KeyFile: key}, CertFile},
		{Files{CertFile: empty, KeyFile: key}, CertFile},
		{Files{CertFile: key, KeyFile: key}, CertFile},
		{Files{CertFile: cert, KeyFile: "/nowhere"}, KeyFile},
		{Files{CertFile: cert, KeyFile: empty}, KeyFile},
		{Files{CertFile: cert, KeyFile: other}, KeyFile},
		{Files{CertFile: cert}, KeyFile},
		{Files{KeyFile: key}, CertFile},
		{Files{CertFile: cert, KeyFile: key, CAFile: cert}, ""},
	} {
		_, err := Open(c.Files, Options{})
		fault := new(Error)
		if got := errors.As(err, &fault); got != (c.want != "") || fault.File != c.want {
			t.Errorf("%+v: %v", c.Files, err)
		}
		if check := Check(c.Files); (check == nil) != (err == nil) {
			t.Errorf("%+v: Check says %v", c.Files, check)
		}
	}
}

// An expired certificate is used, and the client rejects it.
func TestExpiredIsUsed(t *testing.T) {
	r := newSourceFixture(t, false)
	r.ca.Pair(t, tlstest.CN("old"), tlstest.DNS("server.test"), tlstest.Expired()).Write(t, r.dir, "tls")
	r.src.Reload()
	_, _, err := r.shake(r.trusting())
	if invalid := (x509.CertificateInvalidError{}); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("the client says %v", err)
	}
}

// The metric has the expiry of a certificate, also of a renewed one, and of the first in its chain.
func TestExpiryIsShown(t *testing.T) {
	r := newSourceFixture(t, false)
	shown := func() (at float64) {
		w := httptest.NewRecorder()
		r.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		_, after, _ := strings.Cut(w.Body.String(), `xdsrelay_certificate_expiry_timestamp_seconds{of="server"} `)
		if _, err := fmt.Sscan(after, &at); err != nil {
			t.Error(err)
		}
		return at
	}
	first := r.src.inForce.Load().cert.Leaf.NotAfter
	if got := shown(); got != float64(first.Unix()) {
		t.Errorf("it expires at %v, and shown is %v", first, got)
	}
	old := r.ca.Pair(t, tlstest.CN("old"), tlstest.Expired())
	old.Write(t, r.dir, "tls")
	r.src.Reload()
	leaf := r.src.inForce.Load().cert.Leaf.NotAfter
	if got := shown(); got != float64(leaf.Unix()) || !leaf.Before(first) {
		t.Errorf("it expires at %v, and shown is %v", leaf, got)
	}
	// The issuer expires before the leaf.
	now := r.pair("third").TLS(t)
	chain := tls.Certificate{Certificate: [][]byte{now.Certificate[0], old.TLS(t).Certificate[0]}, Leaf: now.Leaf}
	if chain.Leaf == nil {
		chain.Leaf, _ = x509.ParseCertificate(now.Certificate[0])
	}
	if got := validityOf(&chain); !got.Expires.Equal(leaf) || got.Issuer != "CN=old" || got.Name() != "issuer CN=old" || got.Lifetime != 365*day {
		t.Errorf("a chain expires at %+v, want %v", got, leaf)
	}
}

// A file with a part that cannot be read is not used. encoding/pem, and so crypto/x509 and
// crypto/tls, would skip the part.
func TestDamagedFilesAreNotUsed(t *testing.T) {
	ca, second, third := tlstest.NewAuthority(t), tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	leaf := ca.Pair(t)
	one, two, three := string(ca.PEM()), string(second.PEM()), string(third.PEM())
	noBase64 := strings.Replace(two, "\n", "\n?", 1)
	noDER := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
	for name, c := range map[string]struct{ text, says string }{
		"good":                   {one + "a comment\n" + two + three, ""},
		"without its last line":  {one + strings.TrimSuffix(two, "\n"), ""},
		"with carriage returns":  {strings.ReplaceAll(one+two, "\n", "\r\n"), ""},
		"with a key":             {one + string(leaf.Key), ""},
		"no base64":              {one + noBase64 + three, "only 2 of 3 PEM blocks can be read"},
		"first without base64":   {noBase64 + one, "only 1 of 2 PEM blocks can be read"},
		"no DER":                 {one + noDER + three, "PEM block 2 of 3: x509: "},
		"cut in the second":      {one + two[:len(two)/2], "only 1 of 2 PEM blocks can be read"},
		"cut before its end":     {one + strings.TrimSuffix(two, "-----END CERTIFICATE-----\n"), "only 1 of 2 PEM blocks can be read"},
		"beginning overwritten":  {one + strings.Replace(two, "-----BEGIN", "----BEGIN", 1), "only 1 of 2 PEM blocks can be read"},
		"a byte order mark":      {"\ufeff" + one + two, "only 1 of 2 PEM blocks can be read"},
		"indented":               {one + "  " + strings.ReplaceAll(two, "\n", "\n  "), "only 1 of 2 PEM blocks can be read"},
		"of OpenSSL's own type":  {one + strings.ReplaceAll(two, "CERTIFICATE", "TRUSTED CERTIFICATE"), "must be a CERTIFICATE"},
		"no certificate at all":  {string(leaf.Key), "no certificate in "},
		"two blocks in one line": {one + strings.TrimSuffix(two, "\n") + three, "PEM blocks can be read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			// As the authorities of clients or of an origin, and as the chain behind a certificate.
			cert, key := leaf.Write(t, dir, "tls")
			files := map[string]Files{
				CAFile: {CAFile: tlstest.File(t, dir, "ca", []byte(c.text))},
			}
			if !strings.HasPrefix(c.says, "no certificate") {
				tlstest.File(t, dir, "tls.crt", append(bytes.Clone(leaf.Cert), c.text...))
				files[CertFile] = Files{CertFile: cert, KeyFile: key}
			}
			for of, f := range files {
				err := Check(f)
				at := (*Error)(nil)
				switch {
				case c.says == "" && err != nil:
					t.Errorf("%s: %v", of, err)
				case c.says != "" && (!errors.As(err, &at) || at.File != of || !strings.Contains(err.Error(), lastOf(c.says))):
					t.Errorf("%s: the error is %v, and does not say %q", of, err, c.says)
				}
			}
		})
	}
}

// lastOf leaves out the numbers of blocks, which differ if the text is behind another certificate.
func lastOf(says string) string {
	for _, end := range []string{"PEM blocks can be read", "x509: "} {
		if strings.HasSuffix(says, end) {
			return end
		}
	}
	return says
}

// The system's bundle of authorities has no damaged part.
func TestSystemBundleIsNotDamaged(t *testing.T) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	text, err := os.ReadFile(bundle)
	if err != nil {
		t.Skip(err)
	}
	if _, err := ParseCAs(bundle, text); err != nil {
		t.Error(err)
	}
}
