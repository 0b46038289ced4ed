package main

import (
	"xdsrelay/internal/admin"
)

// newAdmin makes the admin server over the parts that are there already. drain
// is what POST /drain does.
func (r *relay) newAdmin(drain func()) (*admin.Server, error) {
	o := admin.Options{
		Config: r.cfg.Admin, Name: r.cfg.Name, Version: version,
		Clients: r.fanout, Keys: r.registry, Origins: r.origins,
		Rules:   func() admin.Rules { return r.now.Load().rules },
		Metrics: r.meters, Level: r.level, Drain: drain, Log: r.log,
		Admitted: r.admitted, Configuration: r.configuration,
	}
	if r.store != nil {
		o.Store = r.store
	}
	return admin.New(o)
}
