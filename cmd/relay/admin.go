package main

import (
	"fmt"
	"net"

	"google.golang.org/grpc/health/grpc_health_v1"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/grpcadmin"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
)

// newAdmin makes the admin server over the parts that are there already. drain
// is what POST /drain does.
func (r *relay) newAdmin(drain func()) (*admin.Server, error) {
	o := admin.Options{
		Config: r.cfg.Admin, Name: r.cfg.Name, Version: version,
		Clients: r.fanout, Keys: keystatus.New(r.registry), Origins: r.origins,
		Rules:   func() admin.Rules { return r.now.Load().rules },
		Metrics: r.meters, Level: r.level, Drain: drain, Log: r.log,
		Admitted: r.admitted, Configuration: r.configuration,
	}
	if r.store != nil {
		o.Store = r.store
	}
	return admin.New(o)
}

// openOperators opens the gRPC address for operators. Its connections are those of
// the fanout's listeners, with admin's certificate and none of a client.
func (r *relay) openOperators() (err error) {
	a := r.cfg.Admin.GRPCAddress
	if a == "" {
		return nil
	}
	r.operators, err = grpcadmin.New(grpcadmin.Options{
		Guard: r.admin, Clients: r.fanout, Health: r.health,
		Transport: r.fanout.AdminServerOptions(), Close: fanout.CloseConnection, Log: r.log,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", a)
	if err != nil {
		return fmt.Errorf("admin.grpc_address: %w", err)
	}
	r.opr = listener.New(l, &listener.Policy{Key: "admin.grpc_address", Connections: grpcadmin.MaxConnections, TLS: r.admin.TLS("h2")})
	return nil
}

// healthy says of each service, by which some ask, that it is served.
func (r *relay) healthy() {
	names := []string{""}
	for service := range r.grpc.GetServiceInfo() {
		names = append(names, service)
	}
	if r.operators != nil {
		names = append(names, r.operators.Services()...)
	}
	for _, n := range names {
		r.health.SetServingStatus(n, grpc_health_v1.HealthCheckResponse_SERVING)
	}
}
