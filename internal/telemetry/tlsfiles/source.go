package tlsfiles

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
)

// Options of a Source.
type Options struct {
	// Name of what the files are for, in the log: "downstream.tls".
	Name    string
	Metrics *telemetry.Metrics // nil: none
	Log     *slog.Logger       // nil: slog.Default
}

// Source has the certificates that are in force.
type Source struct {
	files Files
	opts  Options

	// mu is held while files are read. Handshakes of one Source wait for each
	// other that long, as they would for the certificate.
	mu     sync.Mutex
	seen   stamp // that was last read, with or without success
	sure   bool  // no write since can have left seen as it is
	failed bool  // what was last read cannot be used
	force  *material

	fault atomic.Pointer[Fault] // that it has; nil: none
}

// Fault is that the files, as they are now, cannot be used: those before are in force.
type Fault struct {
	Err   error // an *Error
	Since time.Time
}

// Fault is what is wrong with the files, as they were when they were last looked at; nil:
// nothing, they are in force. It never waits.
func (s *Source) Fault() *Fault { return s.fault.Load() }

// Open reads the files, once; the error is an *Error. Nothing is started.
func Open(f Files, o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Source{files: f, opts: o}
	now := time.Now()
	s.seen = f.look() // before they are read: a later write shows
	s.sure = s.seen.settled(now)
	var err error
	if s.force, err = f.load(); err != nil {
		return nil, err
	}
	s.age(s.force, now)
	return s, nil
}

// Check reads the files once, to say what is wrong with them.
func Check(f Files) error {
	_, err := f.load()
	return err
}

// Validity says when the certificate in the files is valid; ok is false if there
// is none, or it cannot be read.
func Validity(f Files) (from, until time.Time, ok bool) {
	m, err := f.load()
	if err != nil || m.cert == nil {
		return from, until, false
	}
	return m.cert.Leaf.NotBefore, m.cert.Leaf.NotAfter, true
}

// lookEvery is how often Run looks at the files.
const lookEvery = 10 * time.Second

// Run looks at the files now and then until ctx ends; then it returns nil.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.current()
		case <-ctx.Done():
			return nil
		}
	}
}

// current returns what is in force, after a look at the files.
func (s *Source) current() *material {
	m, news := s.refresh(time.Now())
	if news != nil {
		news()
	}
	return m
}

// refresh reads the files again if they changed, and returns what is in force
// and, if there is news, what reports it.
func (s *Source) refresh(now time.Time) (*material, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.files.look()
	same := is.equal(s.seen)
	if same && s.sure {
		return s.force, nil
	}
	s.seen, s.sure = is, is.settled(now)
	fresh, err := s.files.load()
	if err == nil {
		s.force = fresh
	}
	if same && s.failed == (err != nil) {
		return s.force, nil // read again to be sure, and it was the same
	}
	s.failed = err != nil
	s.blame(err, now)
	return s.force, func() { s.report(fresh, err, now) }
}

// blame notes what is wrong with the files, if anything is. Under s.mu.
func (s *Source) blame(err error, now time.Time) {
	switch was := s.fault.Load(); {
	case err == nil:
		s.fault.Store(nil)
	case was != nil:
		s.fault.Store(&Fault{err, was.Since})
	default:
		s.fault.Store(&Fault{err, now})
	}
}

// report says what came of reading files that had changed.
func (s *Source) report(fresh *material, err error, now time.Time) {
	if err != nil {
		s.count(telemetry.ReloadFailed)
		s.opts.Log.Error("certificates not reloaded, those before stay in force", "of", s.opts.Name, "error", err)
		return
	}
	s.count(telemetry.Reloaded)
	s.opts.Log.Info("certificates reloaded", "of", s.opts.Name)
	s.age(fresh, now)
}

// age shows when the certificate expires, and warns of one that is not valid at the
// time: the other side will refuse it.
func (s *Source) age(m *material, now time.Time) {
	if m.cert == nil {
		return
	}
	if s.opts.Metrics != nil {
		s.opts.Metrics.CertificateExpires(s.opts.Name, m.expires)
	}
	if leaf := m.cert.Leaf; now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		s.opts.Log.Warn("certificate is not valid now", "of", s.opts.Name, "from", leaf.NotBefore, "until", leaf.NotAfter)
	}
}

func (s *Source) count(r telemetry.Reload) {
	if s.opts.Metrics != nil {
		s.opts.Metrics.Reload(r)
	}
}

// Server is the configuration of a server that speaks these protocols (ALPN).
// With a CAFile each client has to prove itself by a certificate.
func (s *Source) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current().server(protocols)
		},
	}
}

func (m *material) server(protocols []string) (*tls.Config, error) {
	if m.cert == nil {
		return nil, fmt.Errorf("tls: no %s", CertFile)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{*m.cert},
		// Messages are whole or nothing: small records at a connection's start
		// bring none of them earlier, and each record is a system call.
		DynamicRecordSizingDisabled: true,
	}
	if m.roots != nil {
		c.ClientCAs, c.ClientAuth = m.roots, tls.RequireAndVerifyClientCert
		// A client that resumes a session is not asked for its certificate again:
		// it would be trusted by authorities that are none any more.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}

// Client is the configuration of a connection that is made now. An empty name
// is the target's host.
func (s *Source) Client(serverName string) *tls.Config {
	m := s.current()
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: m.roots}
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	return c
}
