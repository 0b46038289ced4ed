package admin

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"xdsrelay/config"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/admin/rulestatus"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// MaxBody bounds a request's body in bytes.
const MaxBody = 1 << 20

// Bounds for clients, in time and bytes. A profile may take longer, by the time that it asks for.
const (
	maxConnections = 512
	maxHeld        = 16 // answers of reading requests, until they are written
	maxBodies      = 16 // bodies that are read at a time
	maxHeader      = 64 << 10
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 30 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = time.Minute
	grace          = 2 * time.Second // for requests in progress when Run ends
)

// Clients gives the open streams, as fanout.Server does.
type Clients interface {
	ClientsAfter(after uint64) iter.Seq[inspect.ClientStatus]
	ClientConfigs() []inspect.ClientConfig
	Unacknowledged(node string, after uint64) iter.Seq2[uint64, []inspect.Unacknowledged]
	TypeStates(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState]
	PreviewRekey(after uint64, keyOf subscriber.KeyOf) iter.Seq[fanout.RekeyPreview]
	RecentRefusals() []refusal.Recent
	UserAgents() []inspect.UserAgentCount
}

// Keys gives the keys in use, as keystatus.Reader does.
type Keys interface {
	Keys() []keystatus.Key
	Key(xds.Key) (keystatus.Key, bool)
	Used(xds.Key) bool
	Roles() map[telemetry.KeyRole]int
	Owner(xds.Key) string
	Nacks(before uint64) iter.Seq[history.KeyNack]
	Snapshots(xds.Key) ([]*snapshot.Snapshot, bool)
	Differences(u *inspect.Unacknowledged, most int) (out []snapshot.Difference, more int, known bool)
	Changes(key xds.Key, typ xds.TypeURL, version string, most int) (out []snapshot.Difference, more int, known bool)
	Progress(of keystatus.Awaited, states func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState]) keystatus.Progress
}

// Origins gives the configured origins, as upstream.Client does.
type Origins interface {
	Origins() []upstream.OriginStatus
}

// Members gives the members of the cluster, and answers for them, as memberread.Reader does.
type Members interface {
	Members() []cluster.Member
	http.Handler // of /members/NAME/…
}

// Store gives the state of the last known good on disk, as store.Store does.
type Store interface{ Status() store.Status }

// Rules give nodes their keys, as aggregator.Rules do.
type Rules interface {
	rulestatus.Rules
	Explain(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (*aggregator.Explanation, error)
}

// Configuration is the state of the relay's configuration file.
type Configuration struct {
	File string `json:"file"`
	// Since is when the configuration in force was read.
	Since time.Time `json:"since"`
	// NeedsRestart are the keys with new values that need a restart.
	NeedsRestart []string `json:"needs_restart,omitempty"`
	// Rejected: the file has faults, and the configuration before it is in force.
	Rejected *Rejection `json:"rejected,omitempty"`
	// Reloading is there while clients are checked against new rules, or end because of them.
	Reloading *Reloading `json:"reloading,omitempty"`
	// RejectedFiles are files that the configuration names and that cannot be used now. Their
	// former content is in force.
	RejectedFiles []RejectedFile `json:"rejected_files,omitempty"`
	// Certificates are the relay's own certificates in force.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Reloading says how far a change of rules, identity or secrets is. Clients is 0 before the change is
// in force, while the relay counts the clients that would get another key (aggregation.max_rekeyed).
type Reloading struct {
	Checked int64 `json:"checked"`
	Clients int64 `json:"clients"`
	Ending  int64 `json:"ending"` // those that still have to end
	// Over is downstream.drain in seconds, over which they end.
	Over float64 `json:"over_seconds"`
}

// Certificate is a certificate that the relay shows to clients, operators or origins.
type Certificate struct {
	Of string `json:"of"` // the configuration key that names it, or "origin NAME"
	tlsfiles.Validity
}

// RejectedFile is a file, or a group of them, that cannot be used.
type RejectedFile struct {
	Of    string    `json:"of"` // the configuration key that names it
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Rejection describes a faulty file.
type Rejection struct {
	At     time.Time `json:"at"` // when the faults were found
	Faults []string  `json:"faults"`
	// NeedsForce: the file is valid, but changes the key of too many clients. Reload applies it
	// with force, and so does a restart.
	NeedsForce bool `json:"needs_force,omitempty"`
}

// Reload is the answer to POST /reload.
type Reload struct {
	Result string `json:"result"` // ReloadDone, ReloadUnchanged or ReloadRejected
	// Changed are the keys whose new values apply now.
	Changed []string `json:"changed"`
	// NeedsRestart are all keys with new values that need a restart.
	NeedsRestart []string `json:"needs_restart"`
	// Faults are why the files were rejected. Nothing has changed then.
	Faults []string `json:"faults"`
}

const (
	ReloadDone      = "reloaded"
	ReloadUnchanged = "unchanged" // the files are as they were when they were last read
	ReloadRejected  = "rejected"
)

// Options of a Server. All but Members, Admitted, Store, Configuration, Reload and Log are required.
type Options struct {
	// Config has the files of token and certificate. Run's listener has the address.
	Config config.Admin
	// Name of this replica, and the program's version.
	Name, Version string

	Clients Clients
	Keys    Keys
	Origins Origins
	// Members of the cluster; nil: the relay is in none.
	Members Members
	Rules   func() Rules
	// Admitted returns the identity rule and the rule for Secrets of the listener at a configured
	// address; false: there is none. nil: /explain/diff compares no listeners.
	Admitted func(address string) (identity, secrets string, ok bool)
	// Store is the last known good; nil: nothing is stored.
	Store   Store
	Metrics *telemetry.Metrics
	// Level of the log, which POST /logging sets.
	Level *slog.LevelVar
	// Drain makes the relay drain and end. It returns at once. The server calls it at most once.
	Drain func()
	// Configuration returns the state of the configuration file; nil: no file is followed.
	Configuration func() Configuration
	// Reload reads the configuration file again. With force it ignores aggregation.max_rekeyed. It
	// returns false if no file is followed; nil: likewise.
	Reload func(force bool) (Reload, bool)
	// Problems returns those that only the process knows.
	Problems func() []overview.Problem

	Log *slog.Logger // nil: slog.Default
}

type Server struct {
	// Fixed once made.
	opts    Options
	certs   *tlsfiles.Source // nil: plaintext
	handler http.Handler
	started time.Time

	// Safe for concurrent use.
	token   atomic.Pointer[[sha256.Size]byte] // the token's hash; nil: none is needed
	phase   atomic.Int32
	nodes   xds.NodeTable
	hub     *overview.Hub // for open pages
	sampler *overview.Sampler
	held    chan struct{} // has one element for each request with reads set, from its turn until it is written
	reads   chan struct{} // has one element while a request reads
	bodies  chan struct{} // has one element for each request body that is read
	profile chan struct{} // has one element while a profile is made and in the pause after it
}

// New makes a Server. It reads the files of token and certificate. It starts nothing.
func New(o Options) (*Server, error) {
	switch {
	case o.Clients == nil, o.Keys == nil, o.Origins == nil, o.Rules == nil, o.Metrics == nil, o.Level == nil, o.Drain == nil:
		return nil, errors.New("admin: options are missing")
	case o.Log == nil:
		o.Log = slog.Default()
	}
	s := &Server{
		opts: o, started: time.Now(),
		held: make(chan struct{}, maxHeld), reads: make(chan struct{}, 1), bodies: make(chan struct{}, maxBodies), profile: make(chan struct{}, 1),
	}
	s.hub = overview.NewHub(s.overview)
	s.sampler = overview.NewSampler(func() overview.Numbers { return overview.ReadNumbers(o.Metrics) })
	if f := o.Config.TokenFile; f != "" {
		token, err := ReadToken(f)
		if err != nil {
			return nil, fmt.Errorf("admin.token_file: %w", err)
		}
		s.SetToken(token)
	}
	if t := o.Config.TLS; t.CertFile != "" {
		var err error
		s.certs, err = tlsfiles.Open(tlsfiles.Files{CertFile: t.CertFile, KeyFile: t.KeyFile},
			tlsfiles.Options{Name: "admin.tls", Metrics: o.Metrics, Log: o.Log})
		if err != nil {
			return nil, fmt.Errorf("admin.tls: %w", err)
		}
	}
	s.handler = s.mux()
	return s, nil
}

// Certificates returns the source of the server's certificate, which the caller has to run; nil:
// plaintext.
func (s *Server) Certificates() *tlsfiles.Source { return s.certs }

// SetToken changes the token, and reports whether it differs from the one before. Use it only for a
// server with a token file.
func (s *Server) SetToken(token string) bool {
	sum := sha256.Sum256([]byte(token))
	was := s.token.Swap(&sum)
	return was == nil || *was != sum
}

// ReadToken reads a token from a file. An empty token is an error, since any request would have it.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: must have one token of printable ASCII characters without spaces", file)
	}
	return token, nil
}

// Handler returns the handler of all paths, with their checks of access.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves l, with TLS if it is configured, until ctx ends; then it returns nil. It closes l.
// Without a token it refuses an address that is not loopback.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if err := s.MayServe(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	l = netutil.LimitListener(l, maxConnections)
	if t := s.TLS("http/1.1"); t != nil {
		l = tls.NewListener(l, t)
	}
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		// With HTTP/1 a connection ends after its request, so Run can wait for it.
		Protocols: new(http.Protocols),
		// No ReadTimeout: it would end the context of a long profile. guard sets the deadline for a
		// body.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // in Serve, before the connection's goroutine
				conns.Add(1)
			case http.StateClosed: // the goroutine's last call
				conns.Done()
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	sampling, stop := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { s.sampler.Run(sampling) })
	defer sampler.Wait()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		// The listener failed.
		_ = srv.Close() // closes the listener again, at most
		conns.Wait()
		return fmt.Errorf("admin %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.hub.End() // otherwise /events never ends
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if srv.Shutdown(shutdown) != nil {
		_ = srv.Close() // closes what did not end in time
	}
	<-ended
	conns.Wait()
	return nil
}

// TLS returns the configured TLS for these protocols; nil: plaintext.
func (s *Server) TLS(protocols ...string) *tls.Config {
	if s.certs == nil {
		return nil
	}
	return s.certs.Server(protocols...)
}

// MayServe returns an error for an address that other hosts can reach, unless there is a token.
func (s *Server) MayServe(a net.Addr) error {
	if s.token.Load() != nil {
		return nil
	}
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("admin %s: needs admin.token_file, because the address is not loopback", a)
}
