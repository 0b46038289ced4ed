package relay

import (
	"fmt"
	"net"

	"google.golang.org/grpc/health/grpc_health_v1"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/grpcadmin"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/fanout/listener"
)

// newAdmin makes the admin server over the parts that exist already. POST /drain calls drain.
func (r *Relay) newAdmin(drain func()) (*admin.Server, error) {
	o := admin.Options{
		Config: r.cfg.Admin, Name: r.cfg.Name, Version: r.version,
		Clients: r.fanout, Keys: r.keys(), Origins: r.origins,
		Rules:   func() admin.Rules { return r.active.Load().Rules },
		Metrics: r.metrics, Level: r.level, Drain: drain, Log: r.log,
		Admitted: r.admitted, Configuration: r.configuration, Reload: r.reload,
		Problems: r.problems,
	}
	if r.store != nil {
		o.Store = r.store
	}
	if r.Member != nil {
		o.Members = r.Member.reader
	}
	return admin.New(o)
}

// keys returns a reader of the keys' status.
func (r *Relay) keys() *keystatus.Reader {
	if r.Member == nil {
		return keystatus.New(r.registry, r.fanout.Waiting, nil)
	}
	return keystatus.New(r.registry, r.fanout.Waiting, r.Member.Owner)
}

// openAdminGRPC opens admin.grpc_address. It uses the connection settings of the client listeners
// and admin's certificate, and asks for no client certificate.
func (r *Relay) openAdminGRPC() (err error) {
	a := r.cfg.Admin.GRPCAddress
	if a == "" {
		return nil
	}
	r.adminGRPC, err = grpcadmin.New(grpcadmin.Options{
		Guard: r.Admin, Clients: r.fanout, Health: r.health,
		Transport: r.fanout.AdminServerOptions(),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", a)
	if err != nil {
		return fmt.Errorf("admin.grpc_address: %w", err)
	}
	r.adminGRPCListener = r.fanout.ListenAdmin(l, &listener.Policy{Key: "admin.grpc_address", TLS: r.Admin.TLS("h2")}, grpcadmin.MaxConnections)
	return nil
}

// healthy sets the health status of the server and of each of its services to SERVING.
func (r *Relay) healthy() {
	names := []string{""}
	for service := range r.grpc.GetServiceInfo() {
		names = append(names, service)
	}
	if r.adminGRPC != nil {
		names = append(names, r.adminGRPC.Services()...)
	}
	for _, n := range names {
		r.health.SetServingStatus(n, grpc_health_v1.HealthCheckResponse_SERVING)
	}
}

// problems returns a problem while stderr takes no log lines, and nothing otherwise.
func (r *Relay) problems() []overview.Problem {
	since, why, stuck := r.lines.Stuck()
	if !stuck {
		return nil
	}
	return []overview.Problem{{Severity: overview.Warning, Since: since,
		Text:   "stderr takes no log lines: " + why,
		Impact: "Clients are served. The log misses what happens now; xdsrelay_log_dropped_lines_total counts the lost lines.",
		Next:   "Look at what reads the relay's stderr: a log driver or pipe that hangs, a full volume, a terminal after Ctrl-S."}}
}
