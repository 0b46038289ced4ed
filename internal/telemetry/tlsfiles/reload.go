package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/filewatch"
	"xdsrelay/internal/telemetry"
)

// Options of a Source.
type Options struct {
	// Name of the use of the files in the log, such as "downstream.tls".
	Name string
	// CAsChanged is called after other authorities have come into force; nil: nothing is called. Reload
	// waits for it.
	CAsChanged func()
	Metrics    *telemetry.Metrics // nil: none
	Log        *slog.Logger       // nil: slog.Default
}

// Source has the certificates in force.
type Source struct {
	files  Files
	opts   Options
	opened *x509.CertPool // the authorities when it was opened; nil: none

	reloading sync.Mutex // held by Reload

	inForce atomic.Pointer[material]
	renewed chan struct{}         // has an element if inForce has changed
	fault   atomic.Pointer[Fault] // of the files' present content; nil: none
}

// Fault is why the present files cannot be used. The certificates before them stay in force.
type Fault struct {
	Err   error // an *Error
	Since time.Time
}

func (s *Source) Name() string { return s.opts.Name }

// Fault returns the fault of the files when they were last read; nil if they are in force, or if s is
// nil.
func (s *Source) Fault() *Fault {
	if s == nil {
		return nil
	}
	return s.fault.Load()
}

// Open reads the files once and starts nothing. Its error is an *Error.
func Open(f Files, o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	m, err := f.load()
	if err != nil {
		return nil, err
	}
	s := &Source{files: f, opts: o, opened: m.roots, renewed: make(chan struct{}, 1)}
	s.setFault(nil)
	s.inForce.Store(m)
	s.measureExpiry(m)
	return s, nil
}

// Check reads the files once and returns their fault, if any.
func Check(f Files) error {
	_, err := f.load()
	return err
}

// Run follows the files until ctx ends; then it returns nil. It logs a certificate at each
// threshold before it expires, and once it has expired.
func (s *Source) Run(ctx context.Context) error {
	var expiry sync.WaitGroup
	expiry.Go(func() { s.logExpiry(ctx) })
	defer expiry.Wait()
	return filewatch.Run(ctx, s.opts.Log, s.files.paths, s.Reload)
}

// Reload reads the files and puts them in force, unless they have a fault or the same content. It
// reports whether they have no fault. It logs a fault once. Run calls it when the files change.
func (s *Source) Reload() (ok bool) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	m, err := s.files.load()
	if err != nil {
		fault, was := &Fault{err, time.Now()}, s.fault.Load()
		if was != nil {
			fault.Since = was.Since
		}
		s.setFault(fault)
		if was == nil || was.Err.Error() != err.Error() {
			s.count(telemetry.ReloadFailed)
			s.opts.Log.Error("certificates not reloaded; the previous ones stay in force", "of", s.opts.Name, "error", err)
		}
		return false
	}
	s.setFault(nil)
	was := s.inForce.Load()
	if m.sum == was.sum {
		return true
	}
	same := m.roots == nil || m.roots.Equal(was.roots)
	if same {
		m.roots = was.roots
	}
	s.inForce.Store(m)
	s.count(telemetry.Reloaded)
	s.opts.Log.Info("certificates reloaded", "of", s.opts.Name)
	s.measureExpiry(m)
	select {
	case s.renewed <- struct{}{}:
	default: // logExpiry has not seen the change before
	}
	if !same && s.opts.CAsChanged != nil {
		s.opts.CAsChanged()
	}
	return true
}

// setFault sets the fault of the files' present content; nil: none.
func (s *Source) setFault(f *Fault) {
	s.fault.Store(f)
	if s.opts.Metrics != nil {
		s.opts.Metrics.CertificateReloadFailed(s.opts.Name, f != nil)
	}
}

func (s *Source) measureExpiry(m *material) {
	if m.cert != nil && s.opts.Metrics != nil {
		s.opts.Metrics.CertificateExpires(s.opts.Name, m.validity.Expires, m.validity.Lifetime)
	}
}

func (s *Source) count(r telemetry.Reload) {
	if s.opts.Metrics != nil {
		s.opts.Metrics.Reload(r)
	}
}

// VerifyClient verifies the certificates of a client that is connected already, by the authorities in
// force. While these are those of the start, the handshake has verified them.
func (s *Source) VerifyClient(certs []*x509.Certificate) error {
	roots := s.inForce.Load().roots
	if roots == s.opened || len(certs) == 0 {
		return nil
	}
	_, err := VerifyChain(certs, x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// VerifyChain verifies what the other end of a connection sent: its certificate, then the intermediate
// ones.
func VerifyChain(certs []*x509.Certificate, o x509.VerifyOptions) ([][]*x509.Certificate, error) {
	o.Intermediates = x509.NewCertPool()
	for _, c := range certs[1:] {
		o.Intermediates.AddCert(c)
	}
	return certs[0].Verify(o)
}

// Server returns the configuration of a server with these protocols (ALPN). With a CAFile every
// client needs a certificate.
func (s *Source) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.inForce.Load().server(protocols)
		},
	}
}

func (m *material) server(protocols []string) (*tls.Config, error) {
	if m.cert == nil {
		return nil, fmt.Errorf("tls: %s is missing", CertFile)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{*m.cert},
		// gRPC uses a message only when it is complete. Small records at the start of a connection
		// would not bring one earlier, and each record is a system call.
		DynamicRecordSizingDisabled: true,
	}
	if m.roots != nil {
		c.ClientCAs, c.ClientAuth = m.roots, tls.RequireAndVerifyClientCert
		// A client that resumes a session does not show its certificate again. It could then use an
		// authority that was removed.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}

// Client returns the configuration for a connection that is made now. An empty name means the
// target's host.
func (s *Source) Client(serverName string) *tls.Config {
	m := s.inForce.Load()
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: m.roots}
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	return c
}
