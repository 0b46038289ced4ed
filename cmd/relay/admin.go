package main

import (
	"log/slog"

	"xdsrelay/internal/admin"
)

// newAdmin makes the admin server over the parts that are there already. drain
// is what POST /drain does.
func (r *relay) newAdmin(level *slog.LevelVar, drain func()) (*admin.Server, error) {
	return admin.New(admin.Options{
		Config: r.cfg.Admin, Name: r.cfg.Name, Version: version,
		Clients: r.fanout, Keys: r.registry, Origins: r.origins, Rules: r.rules,
		Metrics: r.meters, Level: level, Drain: drain, Log: r.log,
	})
}
