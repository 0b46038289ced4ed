package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/grpcadmin"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/xds"
)

// Relay is the whole relay. It alone knows all its parts. Member and Admin are exported for the tests of
// commands.
type Relay struct {
	cfg       *config.Config               // of the start
	active    atomic.Pointer[activeConfig] // the one in force, as far as it can change
	version   string
	level     *slog.LevelVar
	started   time.Time
	log       *slog.Logger
	metrics   *telemetry.Metrics
	tracer    *tracing.Tracer // nil: off
	origins   *upstream.Client
	store     *store.Store // nil: nothing is kept
	registry  *orchestrator.Registry
	Member    *Member // nil: the relay is in no cluster
	fanout    *fanout.Server
	grpc      *grpc.Server
	health    *health.Server
	Admin     *admin.Server
	adminGRPC *grpcadmin.Server // admin over gRPC; nil: it is off

	listeners         []*clientListener // listeners for clients
	restListener      net.Listener      // nil: REST is off
	adminListener     net.Listener      // nil: admin is off
	adminGRPCListener net.Listener      // nil: admin's gRPC is off

	drained chan struct{}  // closed by POST /drain
	reloads *reloader      // nil: the file is not followed
	lines   *logging.Queue // between log and stderr; not in use unless serve has set it
}

// New builds the relay of a configuration and opens its listeners. It starts nothing. version is
// that of the program. The faults of the configuration are config.Faults.
func New(cfg *config.Config, log *slog.Logger, level *slog.LevelVar, version string) (_ *Relay, err error) {
	c, err := validation.Compile(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, version: version, level: level, started: time.Now(), log: log, drained: make(chan struct{}), lines: new(logging.Queue)}
	first := &activeConfig{cfg: cfg, Compiled: c}
	r.active.Store(first)
	first.warn(log, nil)
	r.metrics, err = telemetry.New(telemetry.Options{
		Prefix: cfg.Metrics.Prefix, StatsdAddress: cfg.Metrics.StatsdAddress, KeyLabel: cfg.Metrics.KeyLabel,
		Log: log, Version: version,
	})
	if err != nil {
		return nil, err
	}
	c.Rules.CountErrors(r.metrics.RuleErrors)
	r.metrics.ReadRulesWithErrors(func() int { return r.active.Load().Rules.WithErrors() })
	r.metrics.ReadLogDropped(func() int64 { return r.lines.Lost() })
	r.showLimits(first)
	r.tracer = tracing.New(tracing.Options{
		Endpoint: cfg.Tracing.OTLPEndpoint, Sample: cfg.Tracing.Sample, Replica: cfg.Name, Version: version, Metrics: r.metrics,
	})
	if cfg.Cluster.Name != "" {
		if r.Member, err = r.newMember(first); err != nil {
			return nil, err
		}
	}
	if r.origins, err = r.newUpstream(); err != nil {
		return nil, err
	}
	if r.store, err = newStore(cfg, r.metrics, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && r.store != nil {
			err = errors.Join(err, r.store.Close())
		}
	}()
	if r.registry, err = r.newRegistry(c.Node); err != nil {
		return nil, err
	}
	d := &cfg.Downstream
	r.fanout = fanout.NewServer(fanout.Options{
		Settings: r.fanoutSettings(first), Joiner: r.registry, Metrics: r.metrics, Tracer: r.tracer, Log: log, Replica: cfg.Name,
		SendTimeout: d.SendTimeout, MaxConnectionAge: d.MaxConnectionAge, OriginVersions: d.Versions == config.VersionsOrigin, SeveralOrigins: len(cfg.Upstream.Origins) > 1,
	})
	r.grpc = grpc.NewServer(r.fanout.ServerOptions(fanout.Keepalive(d.Keepalive))...)
	r.fanout.Register(r.grpc)
	r.health = health.NewServer()
	grpc_health_v1.RegisterHealthServer(r.grpc, r.health)
	if r.listeners, err = newClientListeners(d, c.Identities, r.casChanged, r.metrics, log); err != nil {
		return nil, err
	}
	return r, r.listen()
}

// Follow makes the relay follow its configuration file. load reads it, with flags and environment
// over it, and has returned the present configuration. The relay also reloads on hangups.
func (r *Relay) Follow(load func() (*config.Config, error), hangups <-chan os.Signal) {
	r.reloads = newReloader(r, load, hangups)
}

// LogsTo says that the log is written over a queue.
func (r *Relay) LogsTo(q *logging.Queue) { r.lines = q }

// ClientAddresses returns the addresses of the listeners for clients, separated by commas.
func (r *Relay) ClientAddresses() string { return addresses(r.listeners) }

// AdminAddress returns the address of the admin API, which must not be off.
func (r *Relay) AdminAddress() string { return r.adminListener.Addr().String() }

// casChanged checks all clients again, after other authorities verify their certificates.
func (r *Relay) casChanged() { r.fanout.Rekey(r.active.Load().cfg.Downstream.Drain) }

// newStore opens the store of the last known good; nil: store.path is not set.
func newStore(cfg *config.Config, m *telemetry.Metrics, log *slog.Logger) (*store.Store, error) {
	c := &cfg.Store
	if c.Path == "" {
		return nil, nil
	}
	s, err := store.Open(store.Options{
		Path: c.Path, Interval: c.Interval, MaxBytes: c.MaxBytes, MaxAge: c.MaxAge, Metrics: &m.Store, Log: log,
	})
	if err != nil {
		return nil, config.Faults{cfg.Places.Fault("store.path", "%v", err)}
	}
	return s, nil
}

// NewOrigins makes a client of the configuration's origins for a command that asks them without a relay.
func NewOrigins(cfg *config.Config) (*upstream.Client, error) {
	return (&Relay{cfg: cfg, log: slog.New(slog.DiscardHandler)}).newUpstream()
}

func (r *Relay) newUpstream() (*upstream.Client, error) {
	u := &r.cfg.Upstream
	o := upstream.Options{
		FirstAnswerTimeout: u.FirstAnswerTimeout, SetNodeOnFirstMessageOnly: u.SetNodeOnFirstMessageOnly,
		Backoff: timing.Backoff{Base: u.Backoff.Base, Max: u.Backoff.Max},
		Metrics: r.metrics, Tracer: r.tracer, Log: r.log,
	}
	if r.Member != nil && !u.ByToken() { // otherwise the stream of a key needs a client of this relay
		o.Order = r.Member.table.Order
	}
	variant := xds.Delta
	if u.Variant == config.VariantSotW {
		variant = xds.SotW
	}
	for _, origin := range u.Origins {
		o.Origins = append(o.Origins, upstream.OriginOptions{
			Name: origin.Name, Address: origin.Address, TLS: (*connections.TLSFiles)(origin.TLS), Balance: origin.Balance,
			Identify: r.identify(origin),
			Variant:  variant, MaxRequestBytes: u.MaxRequestBytes, StreamsPerConnection: u.StreamsPerConnection,
			Keepalive: upstream.Keepalive{Time: u.Keepalive.Time, Timeout: u.Keepalive.Timeout},
		})
	}
	return upstream.New(o)
}

// identify returns the token, and for token: representative also the node, of a stream to an origin;
// nil: it needs no token. The file of a token is read for each stream.
func (r *Relay) identify(o config.Origin) func(xds.Key) (upstream.Identity, error) {
	bearer := func(token string) metadata.MD { return metadata.Pairs("authorization", "Bearer "+token) }
	switch {
	case o.TokenFile != "":
		return func(xds.Key) (upstream.Identity, error) {
			token, err := tokens.ReadFile(o.TokenFile)
			if err != nil {
				return upstream.Identity{}, fmt.Errorf("token_file: %w", err)
			}
			return upstream.Identity{Metadata: bearer(token)}, nil
		}
	case o.Token == config.TokenRepresentative:
		return func(key xds.Key) (upstream.Identity, error) {
			node, token, err := r.registry.Bearer(key)
			if err != nil {
				return upstream.Identity{}, fmt.Errorf("token: %w", err)
			}
			return upstream.Identity{Node: node, Metadata: bearer(token)}, nil
		}
	}
	return nil
}

func (r *Relay) newRegistry(node *expr.Node) (*orchestrator.Registry, error) {
	u := &r.cfg.Upstream
	o := orchestrator.Options{
		Settings: r.registrySettings(r.active.Load()),
		NewSource: func(key xds.Key, node []byte, sink upstream.Sink, first *upstream.CurrentOrigin) orchestrator.Source {
			return r.origins.NewSource(key, node, sink, first)
		},
		SotWOrigins:        u.Variant == config.VariantSotW,
		FirstAnswerTimeout: u.FirstAnswerTimeout,
		Metrics:            r.metrics, Log: r.log,
	}
	o.ByToken = u.ByToken()
	if node != nil {
		o.Node = node.Encode
	}
	if r.Member != nil && !u.ByToken() {
		o.Owns, o.Seeds = r.Member.table.Owns, r.Member.table.Seeds
	}
	if r.store != nil {
		o.Store = r.store
	}
	return orchestrator.New(o)
}

// listen opens the listeners, so that their faults are known before anything runs.
func (r *Relay) listen() (err error) {
	defer func() {
		for _, e := range r.listeners {
			if err != nil && e.Listener != nil {
				err = errors.Join(err, e.Close())
			}
		}
		if err != nil && r.Member != nil && r.Member.listener != nil {
			err = errors.Join(err, r.Member.listener.Close())
		}
		for _, l := range []net.Listener{r.restListener, r.adminListener} {
			if err != nil && l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for _, e := range r.listeners {
		if err := e.open(r.fanout); err != nil {
			return err
		}
	}
	if r.Member != nil {
		if err := r.Member.open(r); err != nil {
			return err
		}
	}
	if a := r.cfg.Downstream.RESTAddress; a != "" {
		if r.restListener, err = net.Listen("tcp", a); err != nil {
			return fmt.Errorf("downstream.rest_address: %w", err)
		}
	}
	r.Admin, err = r.newAdmin(func() { close(r.drained) })
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	if a := r.cfg.Admin.Address; a != "" {
		if r.adminListener, err = net.Listen("tcp", a); err != nil {
			return fmt.Errorf("admin.address: %w", err)
		}
	}
	return r.openAdminGRPC()
}

// Run serves until ctx ends or POST /drain, drains, and returns when all parts have ended. The end
// of abort cuts the draining short.
func (r *Relay) Run(ctx, abort context.Context) error {
	r.log.Info("configuration loaded", "config", r.cfg.Places.File(), "name", r.cfg.Name, "rules", len(r.active.Load().Rules.Stats()),
		"store", cmp.Or(r.cfg.Store.Path, "off"), "origins", originNames(r.cfg.Upstream.Origins))
	// The parts outlive ctx until the streams are drained.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(parts)
	g.Go(func() error { return r.metrics.Run(gctx) })
	g.Go(func() error { return r.tracer.Run(gctx) })
	g.Go(func() error { return r.origins.Run(gctx) })
	// While the relay drains, clients leave and their subscriptions go. The store must not record
	// that, so it stops first.
	storeCtx, stopStore := context.WithCancel(gctx)
	defer stopStore()
	if r.store != nil {
		g.Go(func() error { return r.store.Run(storeCtx, abort, r.registry.StoreEntries) })
	}
	g.Go(func() error { return r.registry.Run(gctx) })
	g.Go(func() error { return r.fanout.Run(gctx) })
	select { // before this the registry would refuse clients
	case <-r.registry.Running():
	case <-gctx.Done():
	}
	if r.Member != nil {
		r.Member.cluster.SetReady(true) // others learn it with the join, so that no key moves soon after
		r.Member.run(gctx, g, r)
		select { // so that the first clients' keys are asked for at their owners
		case <-r.Member.cluster.Joined():
		case <-ctx.Done():
		case <-gctx.Done():
		}
	}
	if r.restListener != nil {
		g.Go(func() error { return r.serveREST(gctx) })
	}
	if r.adminListener != nil {
		g.Go(func() error { return ignoreStopped(r.Admin.Run(gctx, r.adminListener), "admin") })
	}
	if r.adminGRPCListener != nil {
		g.Go(func() error { return ignoreStopped(r.adminGRPC.Run(gctx, r.adminGRPCListener), "admin.grpc_address") })
	}
	for _, e := range r.listeners {
		g.Go(func() error { return r.serveClients(gctx, e) })
	}
	for _, e := range r.listeners {
		if e.policy.Tokens != nil {
			g.Go(func() error { return e.policy.Tokens.Run(gctx) })
		}
	}
	for _, c := range r.certs() {
		g.Go(func() error { return c.Run(gctx) })
	}

	if r.reloads != nil {
		g.Go(func() error { return r.reloads.run(gctx) })
	}

	r.healthy()
	r.Admin.SetReady(true)
	r.metrics.Ready.Set(1)
	r.log.Info("serving", "downstream", addresses(r.listeners), "admin", listenAddress(r.cfg.Admin.Address, r.adminListener),
		"rest", listenAddress(r.cfg.Downstream.RESTAddress, r.restListener), "admin_grpc", listenAddress(r.cfg.Admin.GRPCAddress, r.adminGRPCListener),
		"tls", secured(r.cfg.Downstream.Listen()), "admin_tls", onOff(r.cfg.Admin.TLS.CertFile != ""))

	g.Go(func() error {
		select {
		case <-ctx.Done():
			stopStore()
			r.drain(abort)
		case <-r.drained:
			stopStore()
			r.drain(abort)
		case <-gctx.Done(): // a part failed
			r.stopClients()
		}
		stop()
		return nil
	})
	return g.Wait()
}

// serveClients serves a listener until the server has stopped or ctx ends.
func (r *Relay) serveClients(ctx context.Context, e *clientListener) error {
	ended := make(chan error, 1)
	go func() { ended <- r.grpc.Serve(e) }()
	select {
	case err := <-ended:
		return ignoreStopped(err, e.conf.Key)
	case <-ctx.Done(): // see stopClients
		return nil
	}
}

// ignoreStopped drops the error of a server that was stopped on purpose.
func ignoreStopped(err error, what string) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
