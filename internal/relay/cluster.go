package relay

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/config"
	"xdsrelay/internal/admin/memberread"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/ownership"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/xds"
)

// Member is the relay as a member of a cluster: what it knows of the others, and the server for them.
type Member struct {
	relay   *Relay
	cluster *cluster.Cluster
	table   *ownership.Table
	compat  atomic.Pointer[string]
	reader  *memberread.Reader

	certs    *tlsfiles.Source // nil: plaintext
	identity *expr.Predicate  // of both ends; it needs a restart to change

	server   *fanout.Server
	GRPC     *grpc.Server
	listener net.Listener // nil until it is open
}

// newMember makes a member without its server, which needs the registry.
func (r *Relay) newMember(c *activeConfig) (*Member, error) {
	conf := &r.cfg.Cluster
	m := &Member{relay: r, identity: c.MemberIdentity}
	var creds credentials.TransportCredentials = insecure.NewCredentials()
	if conf.TLS.CertFile != "" {
		var err error
		if m.certs, err = tlsfiles.Open(validation.MemberFiles(conf.TLS), tlsfiles.Options{Name: "cluster.tls", CAsChanged: m.casChanged, Metrics: r.metrics, Log: r.log}); err != nil {
			return nil, fmt.Errorf("cluster.tls: %w", err)
		}
		creds = memberCredentials{credentials.NewTLS(m.certs.Client("")), m.certs, m.identity}
	}
	var err error
	m.cluster, err = cluster.New(cluster.Options{
		Name: r.cfg.Name, Version: r.version, Label: conf.Name, Address: conf.Address, Gossip: netip.MustParseAddrPort(conf.Gossip),
		Advertise: conf.Advertise, Join: conf.Join, KeyFile: conf.GossipKeyFile, Metrics: r.metrics, Log: r.log,
	})
	if err != nil {
		return nil, err // it names the setting
	}
	m.setCompat()
	m.reader = &memberread.Reader{Cluster: m.cluster, Credentials: creds, Local: func() http.Handler { return r.Admin.Handler() }}
	m.table = ownership.New(ownership.Options{
		Cluster: m.cluster, Compat: func() string { return *m.compat.Load() }, Credentials: creds, OriginVersions: r.cfg.Downstream.Versions == config.VersionsOrigin,
		MaxAge: r.cfg.Store.MaxAge,
	})
	return m, nil
}

// casChanged checks all members again, after other authorities verify their certificates. It is called
// while the relay runs.
func (m *Member) casChanged() { m.server.Rekey(0) }

// memberProtocol is the version of what members say to each other, which is part of compat.
const memberProtocol = 1

// setCompat computes the hash of the settings that members have to have in common: those that give a
// node its key, and those that decide what the relay requests from origins. The origins' names are
// among them, their addresses are not, because they may differ by zone. A setting that needs a restart
// to change has its value of the start.
func (m *Member) setCompat() {
	active, start := m.relay.active.Load(), m.relay.cfg
	var origins []string
	for _, o := range start.Upstream.Origins {
		origins = append(origins, o.Name)
	}
	text, err := json.Marshal([]any{
		memberProtocol, active.cfg.Aggregation.Rules, active.Rules.FileText(), active.cfg.Aggregation.Unmatched,
		start.Upstream.Node, start.Upstream.Variant, start.Downstream.Versions, origins, start.Upstream.ByToken(),
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(text)
	compat := hex.EncodeToString(sum[:8])
	m.compat.Store(&compat)
	m.cluster.SetCompat(compat)
}

// open makes the server for members and opens its listener. It has no limits and no connection age:
// members are as trusted as the relay itself.
func (m *Member) open(r *Relay) error {
	metrics, err := r.metrics.ForMembers()
	if err != nil {
		return err
	}
	d := &r.cfg.Downstream
	m.server = fanout.NewServer(fanout.Options{
		Settings: fanout.Settings{AckTimeout: d.AckTimeout}, Joiner: m.table.Joiner(r.registry), Metrics: metrics, Log: r.log, Replica: r.cfg.Name,
		SendTimeout: d.SendTimeout, OriginVersions: d.Versions == config.VersionsOrigin, RelayKey: m.table.RelayKey,
	})
	m.GRPC = grpc.NewServer(m.server.ServerOptions(fanout.Keepalive{Time: 10 * time.Second, Timeout: 5 * time.Second, MinTime: 5 * time.Second})...)
	m.server.Register(m.GRPC)
	m.reader.Register(m.GRPC)
	m.table.RegisterSeeds(m.GRPC, r.registry.Seed)
	policy := &listener.Policy{Key: "cluster", Secrets: config.SecretsDeny}
	if m.certs != nil {
		policy.TLS, policy.Verify = m.certs.Server("h2"), m.certs.VerifyClient
		policy.Identity, policy.Secrets = m.identity, config.SecretsMTLS
	}
	l, err := net.Listen("tcp", r.cfg.Cluster.Address)
	if err != nil {
		return fmt.Errorf("cluster.address: %w", err)
	}
	m.listener = m.server.Listen(l, policy)
	return nil
}

// isMember returns an error unless cluster.identity holds for the names of a verified certificate.
func isMember(identity *expr.Predicate, peer expr.Peer) error {
	switch ok, err := identity.Eval(expr.Input{Peer: peer}); {
	case err != nil:
		return fmt.Errorf("cluster.identity: %w", err)
	case !ok:
		return errors.New("cluster.identity: the rule is false for the certificate of the other member")
	}
	return nil
}

// run starts the member's parts in g.
func (m *Member) run(ctx context.Context, g *errgroup.Group, r *Relay) {
	g.Go(func() error { return m.cluster.Run(ctx) })
	g.Go(func() error { return m.table.Run(ctx, r.origins, r.log) })
	g.Go(func() error { return m.server.Run(ctx) })
	if !r.cfg.Upstream.ByToken() { // then all keys are direct, as they should be
		g.Go(func() error { return m.CountKeys(ctx) })
	}
	g.Go(func() error {
		ended := make(chan error, 1)
		go func() { ended <- m.GRPC.Serve(m.listener) }()
		select {
		case err := <-ended:
			return ignoreStopped(err, "cluster.address")
		case <-ctx.Done():
			m.GRPC.Stop()
			return nil
		}
	})
}

// CountKeys counts the keys by role until ctx ends.
func (m *Member) CountKeys(ctx context.Context) error {
	keys, tick := m.relay.keys(), time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		roles := keys.Roles()
		for role, gauge := range m.relay.metrics.ClusterKeys {
			gauge.Set(roles[role])
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// countEvery is how often keys are counted by role.
const countEvery = 10 * time.Second

// drain ends the streams of other members, after those of clients.
func (m *Member) drain(abort context.Context) {
	go m.GRPC.GracefulStop() // it ends with Stop, in run
	m.server.Drain(abort, 0)
}

// Owner returns the member that owns a key, and whether that is this relay. Until it knows a member that
// can own keys, it owns them itself. No member owns keys of which each stream needs a client's token.
func (m *Member) Owner(key xds.Key) (name string, self bool) {
	if m.relay.cfg.Upstream.ByToken() {
		return "", false
	}
	if o, ok := m.table.Owner(key); ok {
		return o.Name, o.Self
	}
	return m.relay.cfg.Name, true
}

// memberCredentials connect to a member, whose certificate the CA and cluster.identity have to accept.
// Its address does not count: members come and go.
type memberCredentials struct {
	credentials.TransportCredentials // for what does not depend on the files
	certs                            *tlsfiles.Source
	identity                         *expr.Predicate
}

// ClientHandshake implements credentials.TransportCredentials.
func (c memberCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t := c.certs.Client("")
	roots := t.RootCAs
	t.InsecureSkipVerify = true // VerifyConnection verifies, without the host
	t.VerifyConnection = func(s tls.ConnectionState) (err error) {
		if s.VerifiedChains, err = tlsfiles.VerifyChain(s.PeerCertificates, x509.VerifyOptions{Roots: roots}); err != nil {
			return err
		}
		return isMember(c.identity, new(listener.Policy).Caller(conn.RemoteAddr().String(), &s).Peer)
	}
	return credentials.NewTLS(t).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c memberCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}
