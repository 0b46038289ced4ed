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
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// MaxBody is how large a request's body may be, in bytes.
const MaxBody = 1 << 20

// What a client may take, in time and in bytes. A profile may take longer, by
// the time that it asks for.
const (
	maxConnections = 512
	maxHeld        = 16 // answers of what is read, until they are written
	maxBodies      = 16 // that are read at a time
	maxHeader      = 64 << 10
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 30 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = time.Minute
	grace          = 2 * time.Second // for what is being answered when Run ends
)

// Clients are the open streams, as fanout.Server has them.
type Clients interface {
	ClientsAfter(after uint64) iter.Seq[inspect.ClientStatus]
	Unacknowledged(node string, after uint64) iter.Seq2[uint64, []inspect.Unacknowledged]
	Standings(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.Standing]
	PreviewRekey(after uint64, keyOf fanout.KeyOf) iter.Seq[fanout.RekeyPreview]
	RecentRefusals() []refusal.Recent
}

// Keys are the keys in use, as keystatus.Reader has them.
type Keys interface {
	Keys() []keystatus.Key
	Key(xds.Key) (keystatus.Key, bool)
	Used(xds.Key) bool
	Nacks(before uint64) iter.Seq[history.KeyNack]
	Resources(xds.Key) ([]*snapshot.Snapshot, bool)
	Differences(u *inspect.Unacknowledged, most int) (out []keystatus.Difference, more int, known bool)
	Progress(of keystatus.Awaited, standings func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.Standing]) keystatus.Progress
}

// Origins are those of the configuration, as upstream.Client has them.
type Origins interface {
	Origins() []upstream.OriginStatus
}

// Store is the last known good on disk, as store.Store has it.
type Store interface{ Status() store.Status }

// Rules give nodes their keys, as aggregator.Rules do.
type Rules interface {
	UsesType() bool
	Explain(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (*aggregator.Explanation, error)
}

// Configuration is what came of the relay's own file.
type Configuration struct {
	File string `json:"file"`
	// Since is when what is in force was read.
	Since time.Time `json:"since"`
	// NeedsRestart are the keys that the file has other values for than are in force.
	NeedsRestart []string `json:"needs_restart,omitempty"`
	// Rejected: the file, as it is now, has faults, and what was before is in force.
	Rejected *Rejection `json:"rejected,omitempty"`
	// NotTaken are files that it names whose content, as it is now, cannot be used: what
	// they had before is in force.
	NotTaken []NotTaken `json:"not_taken,omitempty"`
}

// NotTaken is a file, or some together, whose content cannot be used.
type NotTaken struct {
	Of    string    `json:"of"` // the key that names it
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Rejection is a file that has faults.
type Rejection struct {
	At     time.Time `json:"at"` // when they were found
	Faults []string  `json:"faults"`
}

// Options of a Server. All are needed but Admitted, Store, Configuration and Log.
type Options struct {
	// Config has the files of token and certificate; the address is the
	// listener's.
	Config config.Admin
	// Name of this replica, and the program's version.
	Name, Version string

	Clients Clients
	Keys    Keys
	Origins Origins
	// Rules are those in force now.
	Rules func() Rules
	// Admitted is whom the listener at a configured address lets in: its identity
	// rule and its rule for Secrets; false: there is none. nil: nobody knows.
	Admitted func(address string) (identity, secrets string, ok bool)
	// Store is the last known good; nil: nothing is stored.
	Store   Store
	Metrics *telemetry.Metrics
	// Level of the log, which POST /logging sets.
	Level *slog.LevelVar
	// Drain makes the relay drain and end. It returns at once, and is called at
	// most once.
	Drain func()
	// Configuration says what came of the relay's file; nil: it has none that is
	// followed.
	Configuration func() Configuration

	Log *slog.Logger // nil: slog.Default
}

// Server answers operators.
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
	held    chan struct{} // has one for each request whose answer costs by what the relay holds
	reads   chan struct{} // has one for the one of them that reads
	bodies  chan struct{} // has one for each request whose body is read
	profile chan struct{} // for the one that is profiled for, and for as long again
}

// New makes a Server. It reads the files of token and certificate, and starts
// nothing.
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

// SetToken has another token be asked for from now on. It is for a server that has
// one: what others may reach is not to be opened by a file. It reports whether it is
// another.
func (s *Server) SetToken(token string) bool {
	sum := sha256.Sum256([]byte(token))
	was := s.token.Swap(&sum)
	return was == nil || *was != sum
}

// ReadToken reads the file's one line. An empty token would be no token.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: wants one token of printable ASCII without blanks", file)
	}
	return token, nil
}

// Handler answers everything, for whoever may ask.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves l, with TLS if it is configured, until ctx ends; then it returns
// nil. It closes l. An address that others than this host reach is refused
// without a token.
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
		// HTTP/1 only: a connection ends after its request, and can be waited for.
		Protocols: new(http.Protocols),
		// No ReadTimeout: it would end the context of a long profile. What has a
		// body gets its time in guard.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // in Serve, before the connection's goroutine
				conns.Add(1)
			case http.StateClosed: // the last that goroutine does
				conns.Done()
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		// The listener failed.
		_ = srv.Close() // closes it once more, at most
		conns.Wait()
		return fmt.Errorf("admin %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.hub.End() // pages read for as long as they may
	hurry, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	if srv.Shutdown(hurry) != nil {
		_ = srv.Close() // what did not end in time
	}
	<-ended
	conns.Wait()
	return nil
}

// TLS is that of the configuration, for these protocols; nil: plaintext.
func (s *Server) TLS(protocols ...string) *tls.Config {
	if s.certs == nil {
		return nil
	}
	return s.certs.Server(protocols...)
}

// MayServe checks that an address is for this host only, or a token needed.
func (s *Server) MayServe(a net.Addr) error {
	if s.token.Load() != nil {
		return nil
	}
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("admin %s: not a loopback address, so admin.token_file has to be given", a)
}

// The phases of a relay's life, in order.
const (
	starting int32 = iota
	serving
	draining
)

var phases = [...]string{starting: "starting", serving: "serving", draining: "draining"}

// SetReady says that the listeners are open, or, after that, that the relay
// drains; from then on it is never ready again.
func (s *Server) SetReady(ready bool) {
	if ready {
		s.phase.CompareAndSwap(starting, serving)
	} else {
		s.phase.CompareAndSwap(serving, draining)
	}
}
